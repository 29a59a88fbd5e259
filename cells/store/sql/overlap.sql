-- name: overlap_active
-- Which jobs (tenant_id, job), locked in this transaction, have a run that has not ended: whether one is
-- under way, and whether one waits for that.
SELECT w.i::int, bool_or(r.state <> 'DUE' OR r.reason = 'concurrency'),
       bool_or(r.state = 'DUE' AND r.reason = 'overlap')
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[]) WITH ORDINALITY AS w (tenant_id, job_id, i)
JOIN runs r ON r.tenant_id = w.tenant_id AND r.parent_id = w.job_id AND r.guarded AND r.finished_at IS NULL
           AND r.ordinal = 0 AND (r.state <> 'DUE' OR r.reason IN ('overlap', 'concurrency'))
GROUP BY w.i;

-- name: overlap_jobs
-- Locks jobs (tenant_id, job) whose waiting runs are to begin, so that of two runs one looks after the other's
-- commit; passes over those that somebody else holds.
SELECT w.i::int
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[]) WITH ORDINALITY AS w (tenant_id, job_id, i)
JOIN jobs j ON j.tenant_id = w.tenant_id AND j.job_id = w.job_id
FOR NO KEY UPDATE OF j SKIP LOCKED;

-- name: overlap_insert_buffered
-- Occurrences (tenant_id, job, instant) that wait for the one before them to end.
INSERT INTO runs (tenant_id, parent_id, scheduled_for, state, shard, priority, version, timer_at, due_at, target_id,
                  reason, guarded)
SELECT tenant_id, parent_id, scheduled_for, 'DUE', shard, priority, version, timer_at, due_at, target_id, 'overlap', true
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(shards)s::smallint[],
            %(priorities)s::smallint[], %(versions)s::int[], %(timers)s::timestamptz[], %(dues)s::timestamptz[],
            %(targets)s::text[])
     AS b (tenant_id, parent_id, scheduled_for, shard, priority, version, timer_at, due_at, target_id);

-- name: overlap_put_off
-- Waiting runs (tenant_id, parent, instant, ordinal), locked in this transaction, whose job is at work already,
-- or is given to another of its runs just now (`busy`): they wait for that, and look again later.
UPDATE runs b SET timer_at = c.look_at, reason = 'overlap'
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(looks)s::timestamptz[], %(busy)s::boolean[])
     WITH ORDINALITY AS c (tenant_id, parent_id, scheduled_for, ordinal, look_at, busy, i)
WHERE b.tenant_id = c.tenant_id AND b.parent_id = c.parent_id AND b.scheduled_for = c.scheduled_for
  AND b.ordinal = c.ordinal AND b.state = 'DUE' AND b.reason IS DISTINCT FROM 'concurrency'
  AND (c.busy AND EXISTS (SELECT FROM jobs j WHERE j.tenant_id = c.tenant_id AND j.job_id = c.parent_id)
       OR EXISTS (SELECT FROM runs r WHERE r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id AND r.guarded
                  AND r.finished_at IS NULL AND r.ordinal = 0 AND (r.state <> 'DUE' OR r.reason = 'concurrency')))
RETURNING c.i::int;

-- name: overlap_displace
-- Earlier runs of jobs (tenant_id, job), locked in this transaction: waiting ones are cancelled, those under
-- way are asked to stop; by the job's position. Of a job one of whose runs somebody else changes just then,
-- because it begins or ends, none is touched: a row without a state says so.
WITH wanted AS (
    SELECT w.i, r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal
    FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[]) WITH ORDINALITY AS w (tenant_id, job_id, i)
    JOIN runs r ON r.tenant_id = w.tenant_id AND r.parent_id = w.job_id AND r.guarded AND r.finished_at IS NULL
               AND r.ordinal = 0 AND (r.state <> 'DUE' OR r.reason IN ('overlap', 'concurrency'))
),
earlier AS MATERIALIZED (
    SELECT w.i, r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal
    FROM wanted w
    JOIN runs r ON r.tenant_id = w.tenant_id AND r.parent_id = w.parent_id AND r.scheduled_for = w.scheduled_for
               AND r.ordinal = w.ordinal AND r.finished_at IS NULL
               AND (r.state <> 'DUE' OR r.reason IN ('overlap', 'concurrency'))
    FOR NO KEY UPDATE OF r SKIP LOCKED
),
changing AS (
    SELECT i FROM wanted GROUP BY i EXCEPT ALL
    SELECT w.i FROM (SELECT i, count(*) AS n FROM wanted GROUP BY i) AS w
    JOIN (SELECT i, count(*) AS n FROM earlier GROUP BY i) AS e ON e.i = w.i AND e.n = w.n
),
displaced AS (
    UPDATE runs r SET
        state = CASE WHEN r.state = 'RUNNING' THEN r.state ELSE 'CANCELLED' END,
        finished_at = CASE WHEN r.state <> 'RUNNING' THEN clock_timestamp() END,
        reason = CASE WHEN r.state = 'RUNNING' THEN r.reason ELSE 'displaced by the next occurrence' END,
        cancel_requested = true, timer_at = NULL
    FROM earlier e
    WHERE r.tenant_id = e.tenant_id AND r.parent_id = e.parent_id AND r.scheduled_for = e.scheduled_for
      AND r.ordinal = e.ordinal AND e.i NOT IN (SELECT i FROM changing)
    RETURNING e.i, r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, r.epoch, r.state
)
SELECT i::int, tenant_id, parent_id, scheduled_for, ordinal, epoch, state FROM displaced
UNION ALL
SELECT i::int, NULL, NULL, NULL, NULL, NULL, NULL FROM changing;

-- name: overlap_wake
-- The oldest of what waited for runs of jobs (tenant_id, job) that ended in this transaction is due now.
UPDATE runs r SET timer_at = clock_timestamp()
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[]) AS w (tenant_id, job_id)
CROSS JOIN LATERAL (
    SELECT f.scheduled_for FROM runs f
    WHERE f.tenant_id = w.tenant_id AND f.parent_id = w.job_id AND f.guarded AND f.finished_at IS NULL
      AND f.ordinal = 0 AND f.state = 'DUE' AND f.reason = 'overlap'
    ORDER BY f.scheduled_for LIMIT 1) AS o
WHERE r.tenant_id = w.tenant_id AND r.parent_id = w.job_id AND r.scheduled_for = o.scheduled_for
  AND r.ordinal = 0 AND r.finished_at IS NULL AND r.state = 'DUE' AND r.reason = 'overlap'
RETURNING r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, r.priority, r.shard, r.timer_at;

-- name: overlap_guard
-- Runs of a job (tenant_id, job) that got an overlap policy count from now on.
UPDATE runs SET guarded = true
WHERE tenant_id = %(tenant)s AND parent_id = %(job)s AND finished_at IS NULL AND NOT guarded;
