-- name: overlap_active
-- Which jobs (tenant_id, job), locked in this transaction, have an occurrence under way or waiting for
-- one, and whether one is buffered.
SELECT w.i::int, bool_or(r.state = 'DUE' AND r.reason = 'overlap')
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[]) WITH ORDINALITY AS w (tenant_id, job_id, i)
JOIN runs r ON r.tenant_id = w.tenant_id AND r.parent_id = w.job_id AND r.guarded AND r.finished_at IS NULL
           AND r.ordinal = 0 AND (r.state <> 'DUE' OR r.reason IN ('overlap', 'concurrency'))
GROUP BY w.i;

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
-- Buffered occurrences (tenant_id, parent, instant, ordinal), locked in this transaction, whose
-- predecessor has not ended: they look again later.
UPDATE runs b SET timer_at = c.look_at
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(looks)s::timestamptz[]) WITH ORDINALITY AS c (tenant_id, parent_id, scheduled_for, ordinal, look_at, i)
WHERE b.tenant_id = c.tenant_id AND b.parent_id = c.parent_id AND b.scheduled_for = c.scheduled_for
  AND b.ordinal = c.ordinal AND b.state = 'DUE' AND b.reason = 'overlap'
  AND EXISTS (SELECT FROM runs r WHERE r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id AND r.guarded
              AND r.finished_at IS NULL AND r.ordinal = 0 AND (r.state <> 'DUE' OR r.reason = 'concurrency'))
RETURNING c.i::int;

-- name: overlap_displace
-- Earlier occurrences of jobs (tenant_id, job), locked in this transaction: waiting ones are cancelled,
-- those under way are asked to stop. One that is ending just now is passed over.
WITH earlier AS (
    SELECT r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal
    FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[]) AS w (tenant_id, job_id)
    JOIN runs r ON r.tenant_id = w.tenant_id AND r.parent_id = w.job_id AND r.guarded AND r.finished_at IS NULL
               AND r.ordinal = 0 AND (r.state <> 'DUE' OR r.reason IN ('overlap', 'concurrency'))
    FOR NO KEY UPDATE OF r SKIP LOCKED
)
UPDATE runs r SET
    state = CASE WHEN r.state = 'RUNNING' THEN r.state ELSE 'CANCELLED' END,
    finished_at = CASE WHEN r.state <> 'RUNNING' THEN clock_timestamp() END,
    reason = CASE WHEN r.state = 'RUNNING' THEN r.reason ELSE 'displaced by the next occurrence' END,
    cancel_requested = true, timer_at = NULL
FROM earlier e
WHERE r.tenant_id = e.tenant_id AND r.parent_id = e.parent_id AND r.scheduled_for = e.scheduled_for
  AND r.ordinal = e.ordinal
RETURNING r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, r.epoch, r.state;

-- name: overlap_wake
-- What waited for runs of jobs (tenant_id, job) that ended in this transaction is due now.
UPDATE runs r SET timer_at = clock_timestamp()
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[]) AS w (tenant_id, job_id)
WHERE r.tenant_id = w.tenant_id AND r.parent_id = w.job_id AND r.guarded AND r.finished_at IS NULL
  AND r.ordinal = 0 AND r.state = 'DUE' AND r.reason = 'overlap'
RETURNING r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, r.priority, r.shard, r.timer_at;

-- name: overlap_guard
-- Runs of a job (tenant_id, job) that got an overlap policy count from now on.
UPDATE runs SET guarded = true
WHERE tenant_id = %(tenant)s AND parent_id = %(job)s AND finished_at IS NULL AND NOT guarded;
