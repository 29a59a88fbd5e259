-- name: want
-- Asks for something to be done; asking again while it waits makes it one thing, due at once.
INSERT INTO events_outboxitem (topic, subject, generation, attempts, last_error)
VALUES (%(topic)s, %(subject)s, 1, 0, '')
ON CONFLICT (topic, subject) DO UPDATE
SET generation = events_outboxitem.generation + 1, wanted_at = statement_timestamp(), due_at = statement_timestamp(), attempts = 0
RETURNING id;

-- name: due
-- Items to try now that nobody holds.
SELECT id FROM events_outboxitem
WHERE due_at <= statement_timestamp() AND (leased_until IS NULL OR leased_until < statement_timestamp())
ORDER BY due_at, id
LIMIT %(limit)s;

-- name: lease
-- Takes an item for a while; nobody gets it twice.
UPDATE events_outboxitem
SET leased_until = statement_timestamp() + make_interval(secs => %(lease_seconds)s), attempts = attempts + 1
WHERE id = %(id)s AND due_at <= statement_timestamp() AND (leased_until IS NULL OR leased_until < statement_timestamp())
RETURNING topic, subject, generation, attempts, leased_until;

-- name: done
-- Done for the generation that was leased. If it was wanted again meanwhile, it stays, due now.
WITH gone AS (
    DELETE FROM events_outboxitem WHERE id = %(id)s AND generation = %(generation)s RETURNING id
)
UPDATE events_outboxitem SET leased_until = NULL
WHERE id = %(id)s AND leased_until = %(leased_until)s AND NOT EXISTS (SELECT FROM gone);

-- name: failed
-- Not done: try again later.
UPDATE events_outboxitem
SET leased_until = NULL, last_error = %(error)s,
    due_at = CASE WHEN generation = %(generation)s
                  THEN statement_timestamp() + make_interval(secs => %(delay_seconds)s) ELSE statement_timestamp() END
WHERE id = %(id)s AND leased_until = %(leased_until)s;
