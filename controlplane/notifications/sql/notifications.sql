-- name: claim_event
-- A rule gets an event; nothing if it has got it before.
INSERT INTO notifications_deliveredevent (rule_id, event_id) VALUES (%(rule)s, %(event)s)
ON CONFLICT (rule_id, event_id) DO NOTHING RETURNING id;

-- name: collect
-- The digest of a rule that still takes events, with one more; one that is full is due now and takes no more.
INSERT INTO notifications_delivery AS d (id, rule_id, state, test, digest, events, kind, due_at, give_up_at, attempts, last_error)
VALUES (%(id)s, %(rule)s, 'COLLECTING', false, true, 1, %(kind)s,
        statement_timestamp() + make_interval(mins => %(minutes)s),
        statement_timestamp() + make_interval(mins => %(minutes)s) + %(patience)s, 0, '')
ON CONFLICT (rule_id) WHERE state = 'COLLECTING' DO UPDATE
SET events = d.events + 1, digest = true,
    state = CASE WHEN d.events + 1 >= %(most)s THEN 'WAITING' ELSE d.state END,
    due_at = CASE WHEN d.events + 1 >= %(most)s THEN statement_timestamp() ELSE d.due_at END
RETURNING id;

-- name: uncollected
-- Events that rules with a digest have got, and that are in no message yet: a page of them, by rule.
SELECT e.id, e.rule_id, v.kind, r.digest_minutes
FROM notifications_deliveredevent e
JOIN notifications_notificationrule r ON r.id = e.rule_id
JOIN notifications_notificationevent v ON v.id = e.event_id
WHERE e.delivery_id IS NULL AND r.enabled
ORDER BY e.rule_id, e.id LIMIT %(page)s FOR UPDATE OF e SKIP LOCKED;

-- name: forget_uncollected
-- A page of such events whose rule was disabled meanwhile: they are not told later.
DELETE FROM notifications_deliveredevent WHERE id = ANY (ARRAY(
    SELECT e.id FROM notifications_deliveredevent e JOIN notifications_notificationrule r ON r.id = e.rule_id
    WHERE e.delivery_id IS NULL AND NOT r.enabled LIMIT %(page)s));

-- name: put
-- The message that an event is in.
UPDATE notifications_deliveredevent SET delivery_id = %(delivery)s WHERE id = %(id)s;

-- name: take
-- Messages that are due, under a lease of ours; of each rule and each tenant only a few at once, of a rule whose
-- receiver fails only one, and none while it is held. Those who have the fewest under way come first, and among
-- them who has waited longest. A digest takes no more events from here on.
WITH busy AS (
    SELECT b.rule_id, r.tenant_id, count(*) AS n
    FROM notifications_delivery b JOIN notifications_notificationrule r ON r.id = b.rule_id
    WHERE b.state = 'WAITING' AND b.leased_until >= statement_timestamp()
    GROUP BY b.rule_id, r.tenant_id
), of_rules AS (
    SELECT due.id, due.due_at, coalesce(r.tenant_id, r.id) AS whose
    FROM notifications_notificationrule r
    LEFT JOIN busy ON busy.rule_id = r.id
    CROSS JOIN LATERAL (
        SELECT d.id, d.due_at FROM notifications_delivery d
        WHERE d.rule_id = r.id AND d.state IN ('COLLECTING', 'WAITING') AND d.due_at <= statement_timestamp()
          AND (d.leased_until IS NULL OR d.leased_until < statement_timestamp())
          AND (d.test OR (r.enabled AND (r.held_until IS NULL OR r.held_until <= statement_timestamp())))
        ORDER BY d.due_at, d.id
        LIMIT greatest(0, CASE WHEN r.failures > 0 THEN 1 ELSE %(each)s END - coalesce(busy.n, 0))
    ) AS due
), placed AS (
    SELECT o.id, o.due_at,
           row_number() OVER (PARTITION BY o.whose ORDER BY o.due_at, o.id)
           + coalesce((SELECT sum(busy.n) FROM busy WHERE coalesce(busy.tenant_id, busy.rule_id) = o.whose), 0) AS place
    FROM of_rules o
), chosen AS (
    SELECT id FROM placed WHERE place <= %(together)s ORDER BY place, due_at, id LIMIT %(limit)s
), held AS (
    SELECT d.id FROM notifications_delivery d JOIN chosen USING (id) ORDER BY d.id FOR UPDATE OF d SKIP LOCKED
)
UPDATE notifications_delivery d
SET state = 'WAITING', lease = %(lease)s, attempts = d.attempts + 1,
    leased_until = statement_timestamp() + make_interval(secs => %(seconds)s)
FROM held
WHERE d.id = held.id AND d.state IN ('COLLECTING', 'WAITING') AND d.due_at <= statement_timestamp()
  AND (d.leased_until IS NULL OR d.leased_until < statement_timestamp())
RETURNING d.id;

-- name: delivered
-- The receiver has a message, if it is still ours.
UPDATE notifications_delivery
SET state = 'DELIVERED', lease = NULL, leased_until = NULL, delivered_at = statement_timestamp(),
    last_status = %(status)s, last_error = ''
WHERE id = %(id)s AND lease = %(lease)s RETURNING rule_id;

-- name: failed
-- A message did not arrive, if it is still ours: it is sent again, or dead once its time is over or its rule disabled.
UPDATE notifications_delivery
SET lease = NULL, leased_until = NULL, last_status = %(status)s, last_error = %(error)s,
    due_at = statement_timestamp() + make_interval(secs => %(delay)s),
    state = CASE WHEN %(for_good)s OR test OR statement_timestamp() + make_interval(secs => %(delay)s) > give_up_at
                      OR NOT (SELECT r.enabled FROM notifications_notificationrule r WHERE r.id = rule_id)
                 THEN 'DEAD' ELSE 'WAITING' END
WHERE id = %(id)s AND lease = %(lease)s RETURNING state;

-- name: end_unsent
-- A rule was disabled: what it has not sent is not told later. What is under way ends by itself.
UPDATE notifications_delivery SET state = 'DEAD', last_error = 'its rule was disabled', lease = NULL, leased_until = NULL
WHERE rule_id = %(rule)s AND state IN ('COLLECTING', 'WAITING') AND NOT test
  AND (leased_until IS NULL OR leased_until < statement_timestamp());

-- name: receiver_answers
-- A rule's receiver does its part.
UPDATE notifications_notificationrule
SET failures = 0, held_until = NULL, last_delivered_at = statement_timestamp(), last_error = ''
WHERE id = %(rule)s;

-- name: receiver_fails
-- A rule's receiver does not; its other messages wait.
UPDATE notifications_notificationrule
SET failures = failures + 1, last_error = %(error)s,
    held_until = statement_timestamp() + make_interval(secs => (%(holds)s::int[])[least(failures + 1, %(longest)s)])
WHERE id = %(rule)s;

-- name: advance
-- How far a tenant's feed was read, if nobody else has read on.
UPDATE notifications_feedplace SET place = %(place)s::bigint[], read_at = statement_timestamp()
WHERE tenant_id = %(tenant)s AND place IS NOT DISTINCT FROM %(before)s::bigint[] RETURNING tenant_id;

-- name: readers
-- Tenants with rules that want what cells tell (or all, for rules of operators), and how far they were read;
-- those of one cell.
INSERT INTO notifications_feedplace (tenant_id)
SELECT p.tenant_id FROM topology_placement p
WHERE p.cell_id = %(cell)s
  AND EXISTS (SELECT FROM notifications_notificationrule r
              WHERE (r.tenant_id = p.tenant_id OR r.tenant_id IS NULL) AND r.enabled AND r.kinds && %(kinds)s::varchar[])
  AND NOT EXISTS (SELECT FROM notifications_feedplace f WHERE f.tenant_id = p.tenant_id)
ON CONFLICT DO NOTHING;

-- name: read_on
-- The places of those tenants, in the order of their ids behind one of them.
SELECT f.tenant_id, f.since, f.place
FROM notifications_feedplace f JOIN topology_placement p ON p.tenant_id = f.tenant_id AND p.cell_id = %(cell)s
WHERE (%(after)s::uuid IS NULL OR f.tenant_id > %(after)s::uuid)
  AND EXISTS (SELECT FROM notifications_notificationrule r
              WHERE (r.tenant_id = f.tenant_id OR r.tenant_id IS NULL) AND r.enabled AND r.kinds && %(kinds)s::varchar[])
ORDER BY f.tenant_id LIMIT %(limit)s;

-- name: read_from_now
-- A tenant's feed, or everybody's for operators' rules, is read from here on, where it was not read yet.
INSERT INTO notifications_feedplace (tenant_id)
SELECT tenant_id FROM topology_placement WHERE %(tenant)s::uuid IS NULL OR tenant_id = %(tenant)s
ON CONFLICT DO NOTHING;

-- name: forget_readers
-- Places of tenants whose rules want nothing of cells any more: whoever asks anew begins with what happens then.
DELETE FROM notifications_feedplace f
WHERE NOT EXISTS (SELECT FROM notifications_notificationrule r
                  WHERE (r.tenant_id = f.tenant_id OR r.tenant_id IS NULL) AND r.enabled
                    AND r.kinds && %(kinds)s::varchar[]);

-- name: prune_deliveries
-- Messages that are over and were kept long enough, a page of them, with their tries and what was in them.
WITH past AS (
    SELECT id FROM notifications_delivery
    WHERE created_at < statement_timestamp() - make_interval(days => %(days)s) AND state IN ('DELIVERED', 'DEAD')
    ORDER BY created_at LIMIT %(page)s FOR UPDATE SKIP LOCKED
), tries AS (
    DELETE FROM notifications_deliveryattempt t USING past WHERE t.delivery_id = past.id
), contents AS (
    DELETE FROM notifications_deliveredevent e USING past WHERE e.delivery_id = past.id
)
DELETE FROM notifications_delivery d USING past WHERE d.id = past.id;

-- name: prune_removed
-- A page of messages of rules that were removed, with their tries and what was in them; how many.
WITH past AS MATERIALIZED (
    SELECT d.id FROM notifications_delivery d JOIN notifications_notificationrule r ON r.id = d.rule_id
    WHERE r.removed_at IS NOT NULL LIMIT %(page)s
), tries AS (
    DELETE FROM notifications_deliveryattempt t USING past WHERE t.delivery_id = past.id
), contents AS (
    DELETE FROM notifications_deliveredevent e USING past WHERE e.delivery_id = past.id
), gone AS (
    DELETE FROM notifications_delivery d USING past WHERE d.id = past.id RETURNING 1
)
SELECT count(*) FROM gone;

-- name: prune_removed_claims
-- A page of what such rules had wanted and in no message yet; how many.
WITH past AS MATERIALIZED (
    SELECT e.ctid FROM notifications_deliveredevent e JOIN notifications_notificationrule r ON r.id = e.rule_id
    WHERE r.removed_at IS NOT NULL AND e.delivery_id IS NULL LIMIT %(page)s
), gone AS (
    DELETE FROM notifications_deliveredevent e WHERE e.ctid = ANY (ARRAY(SELECT ctid FROM past)) RETURNING 1
)
SELECT count(*) FROM gone;

-- name: prune_removed_rules
-- Removed rules of which nothing is left; how many.
WITH gone AS (
    DELETE FROM notifications_notificationrule r WHERE r.removed_at IS NOT NULL
    AND NOT EXISTS (SELECT FROM notifications_delivery d WHERE d.rule_id = r.id)
    AND NOT EXISTS (SELECT FROM notifications_deliveredevent e WHERE e.rule_id = r.id) RETURNING 1
)
SELECT count(*) FROM gone;

-- name: prune_events
-- Events that are in no message any more.
DELETE FROM notifications_notificationevent e
WHERE e.heard_at < statement_timestamp() - make_interval(days => %(days)s)
  AND NOT EXISTS (SELECT FROM notifications_deliveredevent d WHERE d.event_id = e.id);
