-- name: due
-- Exports that a worker may take now: asked for, or left behind by a worker whose lease lapsed.
SELECT id FROM custody_tenantexport
WHERE (state = 'REQUESTED' AND due_at <= statement_timestamp())
   OR (state = 'RUNNING' AND leased_until < statement_timestamp())
ORDER BY due_at, id LIMIT %(limit)s;

-- name: take
-- Takes an export that waits, or whose worker is silent; nobody gets it twice.
UPDATE custody_tenantexport
SET state = 'RUNNING', lease = %(lease)s, attempts = attempts + 1,
    leased_until = statement_timestamp() + make_interval(secs => %(seconds)s)
WHERE id = %(id)s AND ((state = 'REQUESTED' AND due_at <= statement_timestamp())
                       OR (state = 'RUNNING' AND leased_until < statement_timestamp()))
RETURNING id;

-- name: renew
-- The holder of the lease lives.
UPDATE custody_tenantexport SET leased_until = statement_timestamp() + make_interval(secs => %(seconds)s)
WHERE id = %(id)s AND state = 'RUNNING' AND lease = %(lease)s RETURNING id;

-- name: keep
-- A file is written, and how far that is.
UPDATE custody_tenantexport
SET kind = %(kind)s, cursor = %(cursor)s, part = %(part)s, counts = %(counts)s, files = %(files)s, attempts = 1,
    error = '', leased_until = statement_timestamp() + make_interval(secs => %(seconds)s)
WHERE id = %(id)s AND state = 'RUNNING' AND lease = %(lease)s RETURNING id;

-- name: pause
-- Its turn is over: others come first, and then it goes on behind what it has kept.
UPDATE custody_tenantexport
SET state = 'REQUESTED', lease = NULL, leased_until = NULL, attempts = 0, due_at = statement_timestamp()
WHERE id = %(id)s AND state = 'RUNNING' AND lease = %(lease)s RETURNING id;

-- name: finish
-- Its files are whole.
UPDATE custody_tenantexport
SET state = 'DONE', lease = NULL, leased_until = NULL, files = %(files)s, error = '',
    finished_at = statement_timestamp(), expires_at = statement_timestamp() + make_interval(days => %(days)s)
WHERE id = %(id)s AND state = 'RUNNING' AND lease = %(lease)s RETURNING id;

-- name: retry
-- Not done: later again, from where it was.
UPDATE custody_tenantexport
SET state = 'REQUESTED', lease = NULL, leased_until = NULL, error = %(error)s,
    due_at = statement_timestamp() + make_interval(secs => %(delay)s)
WHERE id = %(id)s AND state = 'RUNNING' AND lease = %(lease)s RETURNING id;

-- name: give_up
-- Not done, and not tried again.
UPDATE custody_tenantexport
SET state = 'FAILED', lease = NULL, leased_until = NULL, error = %(error)s, finished_at = statement_timestamp()
WHERE id = %(id)s AND state = 'RUNNING' AND lease = %(lease)s RETURNING id;

-- name: expire
-- Exports that were kept long enough are nobody's any more.
UPDATE custody_tenantexport SET state = 'EXPIRED' WHERE state = 'DONE' AND expires_at <= statement_timestamp()
RETURNING id;
