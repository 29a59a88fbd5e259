-- name: concurrency_lock
-- One at a time may give out the places of these keys (tenant_id, key), until it commits. In one order for
-- all who lock several.
SELECT pg_advisory_xact_lock(k.n) FROM (
    SELECT DISTINCT hashtextextended('clockhouse.key ' || w.tenant_id::text || w.key, 0) AS n
    FROM unnest(%(tenants)s::uuid[], %(keys)s::text[]) AS w (tenant_id, key) ORDER BY n) AS k;

-- name: concurrency_held
-- How many runs of some keys (tenant_id, key) are RUNNING, under leases that end from a time on; which of those ends
-- first, and when this look began.
SELECT w.i::int, h.held::int, h.first, statement_timestamp()
FROM unnest(%(tenants)s::uuid[], %(keys)s::text[], %(since)s::timestamptz[]) WITH ORDINALITY AS w (tenant_id, key, since, i)
CROSS JOIN LATERAL (SELECT count(*) AS held, min(r.lease_expires_at) AS first FROM runs r
                    WHERE r.tenant_id = w.tenant_id AND r.concurrency_key = w.key
                      AND r.lease_expires_at >= w.since) AS h;

-- name: concurrency_waiting
-- The oldest runs that wait for a place of some keys (tenant_id, key): parked ones, and those due for
-- less than half a minute. Who is due for longer is held up by something else, and keeps no place.
SELECT w.i::int, q.parent_id, q.scheduled_for, q.ordinal, q.due_at, q.max_concurrent, q.parked
FROM unnest(%(tenants)s::uuid[], %(keys)s::text[], %(most)s::int[]) WITH ORDINALITY AS w (tenant_id, key, most, i)
CROSS JOIN LATERAL (
    SELECT r.parent_id, r.scheduled_for, r.ordinal, r.due_at, coalesce(r.max_concurrent, 1) AS max_concurrent,
           r.timer_at >= %(never)s AS parked
    FROM runs r
    WHERE r.tenant_id = w.tenant_id AND r.concurrency_key = w.key AND r.timer_at IS NOT NULL
      AND (r.timer_at >= %(never)s
           OR r.timer_at BETWEEN clock_timestamp() - interval '30 seconds' AND clock_timestamp())
    ORDER BY r.due_at, r.parent_id, r.scheduled_for, r.ordinal LIMIT w.most
) AS q;

-- name: concurrency_park_runs
-- Waiting runs locked in this transaction (tenant_id, parent, instant, ordinal) wait for a place of their
-- key, without a timer that comes. What a worker may poll for is no longer offered.
UPDATE runs r
SET state = CASE WHEN r.state = 'READY' THEN 'DUE' ELSE r.state END, timer_at = %(never)s, reason = 'concurrency', concurrency_key = c.key, max_concurrent = c.most
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(keys)s::text[], %(most)s::int[]) AS c (tenant_id, parent_id, scheduled_for, ordinal, key, most)
WHERE r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id
  AND r.scheduled_for = c.scheduled_for AND r.ordinal = c.ordinal;

-- name: concurrency_insert_parked
-- Occurrences (tenant_id, job, instant, ordinal) that wait for a place of their key as runs without an
-- attempt: DUE, without a timer that comes.
INSERT INTO runs (tenant_id, parent_id, scheduled_for, ordinal, state, shard, priority, version, due_at, released_at,
                  timer_at, target_id, reason, concurrency_key, max_concurrent, guarded)
SELECT tenant_id, parent_id, scheduled_for, ordinal, 'DUE', shard, priority, version, due_at, released_at,
       %(never)s, target_id, 'concurrency', key, most, guarded
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(shards)s::smallint[], %(priorities)s::smallint[], %(versions)s::int[], %(dues)s::timestamptz[],
            %(released)s::timestamptz[], %(targets)s::text[], %(keys)s::text[], %(most)s::int[],
            %(guards)s::boolean[])
     AS c (tenant_id, parent_id, scheduled_for, ordinal, shard, priority, version, due_at, released_at, target_id,
           key, most, guarded);

-- name: concurrency_hold
-- Runs that this transaction made RUNNING (tenant_id, parent, instant, ordinal) hold a place of their key.
UPDATE runs r SET concurrency_key = c.key, max_concurrent = c.most, reason = NULL
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(keys)s::text[], %(most)s::int[]) AS c (tenant_id, parent_id, scheduled_for, ordinal, key, most)
WHERE r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id
  AND r.scheduled_for = c.scheduled_for AND r.ordinal = c.ordinal;

-- name: concurrency_wake_runs
-- Parked runs (tenant_id, parent, instant, ordinal) whose turn has come are due now. What somebody else
-- changes just then is passed over: waited for, it could be in a circle. Found by their keys, as in `claim_lock_runs`.
WITH q AS MATERIALIZED (
    SELECT o.tenant_id, o.parent_id, o.scheduled_for, o.ordinal
    FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[])
         AS c (tenant_id, parent_id, scheduled_for, ordinal)
    JOIN runs o ON o.tenant_id = c.tenant_id AND o.parent_id = c.parent_id
               AND o.scheduled_for = c.scheduled_for AND o.ordinal = c.ordinal
               AND coalesce(o.timer_at, '-infinity') >= %(never)s
    FOR NO KEY UPDATE OF o SKIP LOCKED
)
UPDATE runs r SET timer_at = clock_timestamp()
FROM q
WHERE r.tenant_id = q.tenant_id AND r.parent_id = q.parent_id
  AND r.scheduled_for = q.scheduled_for AND r.ordinal = q.ordinal
RETURNING r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, r.series, r.attempt, r.priority, r.shard, r.timer_at;

-- name: concurrency_wake
-- The oldest parked runs of some keys (tenant_id, key), as many as places came free, are due now. What
-- somebody else changes just then is passed over. Chosen once: looked for again, they would be others.
WITH q AS MATERIALIZED (
    SELECT w.tenant_id, l.parent_id, l.scheduled_for, l.ordinal
    FROM unnest(%(tenants)s::uuid[], %(keys)s::text[], %(most)s::int[]) AS w (tenant_id, key, most)
    CROSS JOIN LATERAL (
        SELECT o.parent_id, o.scheduled_for, o.ordinal FROM runs o
        WHERE o.tenant_id = w.tenant_id AND o.concurrency_key = w.key AND o.timer_at IS NOT NULL
          AND o.timer_at >= %(never)s
        ORDER BY o.due_at, o.parent_id, o.scheduled_for, o.ordinal LIMIT w.most
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS l
)
UPDATE runs r SET timer_at = clock_timestamp()
FROM q
WHERE r.tenant_id = q.tenant_id AND r.parent_id = q.parent_id
  AND r.scheduled_for = q.scheduled_for AND r.ordinal = q.ordinal
RETURNING r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, r.series, r.attempt, r.priority, r.shard, r.timer_at;

-- name: concurrency_keys
-- Keys behind a place (tenant_id, key) that anything waits for, with the limit of the oldest parked one (0: none
-- is): each found by one probe.
WITH RECURSIVE walk AS (
    (SELECT r.tenant_id, r.concurrency_key AS key, 1 AS n FROM runs r
     WHERE r.concurrency_key IS NOT NULL AND r.timer_at IS NOT NULL
       AND (r.tenant_id, r.concurrency_key) > (%(tenant)s::uuid, %(key)s::text)
     ORDER BY r.tenant_id, r.concurrency_key LIMIT 1)
    UNION ALL
    SELECT s.tenant_id, s.concurrency_key, w.n + 1
    FROM walk w CROSS JOIN LATERAL (
        SELECT r.tenant_id, r.concurrency_key FROM runs r
        WHERE r.concurrency_key IS NOT NULL AND r.timer_at IS NOT NULL
          AND (r.tenant_id, r.concurrency_key) > (w.tenant_id, w.key)
        ORDER BY r.tenant_id, r.concurrency_key LIMIT 1) AS s
    WHERE w.n < %(limit)s
)
SELECT w.tenant_id, w.key, coalesce(o.max_concurrent, 0)
FROM walk w LEFT JOIN LATERAL (
    SELECT r.max_concurrent FROM runs r
    WHERE r.tenant_id = w.tenant_id AND r.concurrency_key = w.key AND r.timer_at IS NOT NULL AND r.timer_at >= %(never)s
    ORDER BY r.due_at LIMIT 1) AS o ON true;
