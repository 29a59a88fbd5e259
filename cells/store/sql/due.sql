-- name: due_jobs
-- A page of waiting jobs of some shards (any tenant_id) in a narrow range of due times, from a
-- position on. Due times are epoch microseconds: making instants of them is dear to the reader, and a
-- double holds them exactly.
SELECT tenant_id, job_id, date_part('epoch', next_run_at)::bigint, version, priority,
       round(date_part('epoch', due_at) * 1000000)::bigint, shard
FROM jobs
WHERE due_at IS NOT NULL AND shard = ANY(%(shards)s::smallint[])
  AND due_at >= %(since)s AND due_at < %(until)s
  AND (shard, due_at) >= (%(shard)s::smallint, %(due)s::timestamptz)
  AND (shard, due_at, tenant_id, job_id) > (%(shard)s::smallint, %(due)s::timestamptz, %(tenant)s::uuid, %(job)s::uuid)
ORDER BY shard, due_at, tenant_id, job_id
LIMIT %(page)s;

-- name: due_runs
-- The same for waiting runs.
SELECT tenant_id, parent_id, date_part('epoch', scheduled_for)::bigint, ordinal, series, attempt, priority,
       round(date_part('epoch', timer_at) * 1000000)::bigint, shard
FROM runs
WHERE timer_at IS NOT NULL AND shard = ANY(%(shards)s::smallint[])
  AND timer_at >= %(since)s AND timer_at < %(until)s
  AND (shard, timer_at) >= (%(shard)s::smallint, %(due)s::timestamptz)
  AND (shard, timer_at, tenant_id, parent_id, scheduled_for, ordinal)
      > (%(shard)s::smallint, %(due)s::timestamptz, %(tenant)s::uuid, %(parent)s::uuid, %(at)s::timestamptz, %(ordinal)s::int)
ORDER BY shard, timer_at, tenant_id, parent_id, scheduled_for, ordinal
LIMIT %(page)s;
