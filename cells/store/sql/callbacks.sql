-- name: callback_insert
-- Callbacks (tenant_id, job, instant, ordinal) of runs that end in this transaction, due now; none where
-- there is one already.
INSERT INTO runs (tenant_id, parent_id, scheduled_for, ordinal, kind, state, shard, priority, version, due_at, timer_at,
                  target_id, input, callback)
SELECT tenant_id, parent_id, scheduled_for, ordinal, 2, 'DUE', shard, priority, version, clock_timestamp(),
       clock_timestamp(), target_id, input, which
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(shards)s::smallint[], %(priorities)s::smallint[], %(versions)s::int[], %(targets)s::text[],
            %(inputs)s::bytea[], %(which)s::text[])
     AS c (tenant_id, parent_id, scheduled_for, ordinal, shard, priority, version, target_id, input, which)
ON CONFLICT DO NOTHING
RETURNING tenant_id, parent_id, scheduled_for, ordinal, priority, shard, timer_at;

-- name: callback_ended
-- Runs (tenant_id, parent, instant, ordinal) that ended in this transaction, with their definitions.
SELECT r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, r.state, r.series, r.attempt, r.priority, r.shard, r.version,
       r.due_at, r.target_id, r.http_status, r.reason, r.finished_at, v.definition
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[])
     AS w (tenant_id, parent_id, scheduled_for, ordinal)
JOIN runs r ON r.tenant_id = w.tenant_id AND r.parent_id = w.parent_id
           AND r.scheduled_for = w.scheduled_for AND r.ordinal = w.ordinal AND r.kind = 0
JOIN job_versions v ON v.tenant_id = r.tenant_id AND v.job_id = r.parent_id AND v.version = r.version;

-- name: callback_list
-- The callbacks about one run (tenant_id, job, instant), the latest series first.
SELECT parent_id, scheduled_for, ordinal, kind, state, priority, version, epoch, series, attempt, timer_at,
       lease_expires_at, due_at, released_at, claimed_at, started_at, finished_at, cancel_requested, target_id,
       http_status, reason, skipped, attempts::text, worker, heartbeat_at, progress::text
FROM runs
WHERE tenant_id = %(tenant)s AND parent_id = %(parent)s AND scheduled_for = %(at)s
  AND ordinal BETWEEN %(first)s AND %(last)s AND kind = 2
ORDER BY ordinal;
