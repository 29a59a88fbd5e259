-- name: backfill_facts
-- How many occurrences of a job (tenant_id, job) have a run in a stretch, and how many rows stand for
-- skipped ones.
SELECT count(*) FILTER (WHERE state <> 'SKIPPED')::int, count(*) FILTER (WHERE state = 'SKIPPED')::int
FROM runs
WHERE tenant_id = %(tenant)s AND parent_id = %(job)s AND scheduled_for >= %(from)s AND scheduled_for < %(until)s
  AND ordinal = 0;

-- name: backfill_insert
-- A stretch of a job's past (tenant_id, job) begins to be run. No row: it has begun under this id.
INSERT INTO backfills (tenant_id, backfill_id, job_id, from_at, until_at, cursor_at, total, max_per_second, created_by)
VALUES (%(tenant)s, %(backfill)s, %(job)s, %(from)s, %(until)s, %(from)s, %(total)s, %(rate)s, %(actor)s)
ON CONFLICT DO NOTHING RETURNING true;

-- name: backfill_get
-- One backfill (tenant_id, backfill).
SELECT backfill_id, job_id, from_at, until_at, cursor_at, state, total, started, replaced, present, reason,
       max_per_second, created_by, created_at, finished_at, stopped_by
FROM backfills WHERE tenant_id = %(tenant)s AND backfill_id = %(backfill)s;

-- name: backfill_list
-- A page of a tenant's backfills, newest first, perhaps of one job.
SELECT backfill_id, job_id, from_at, until_at, cursor_at, state, total, started, replaced, present, reason,
       max_per_second, created_by, created_at, finished_at, stopped_by
FROM backfills
WHERE tenant_id = %(tenant)s AND (%(job)s::uuid IS NULL OR job_id = %(job)s)
  AND (created_at, backfill_id) < (coalesce(%(after_at)s::timestamptz, 'infinity'),
                                   coalesce(%(after_id)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
ORDER BY created_at DESC, backfill_id DESC LIMIT %(limit)s;

-- name: backfill_stop
-- RUNNING to STOPPED (tenant_id, backfill): what was started runs.
UPDATE backfills SET state = 'STOPPED', finished_at = clock_timestamp(), stopped_by = %(actor)s
WHERE tenant_id = %(tenant)s AND backfill_id = %(backfill)s AND state = 'RUNNING';

-- name: backfill_next
-- Locks one backfill whose turn has come (any tenant_id that is active here); passes over those that
-- somebody else works on.
SELECT b.tenant_id, t.ownership_epoch, b.backfill_id, b.job_id, b.from_at, b.until_at, b.cursor_at, b.max_per_second,
       b.created_by
FROM backfills b JOIN tenants t ON t.tenant_id = b.tenant_id AND t.state = 'ACTIVE'
WHERE b.state = 'RUNNING' AND b.next_at <= clock_timestamp()
ORDER BY b.next_at LIMIT 1
FOR UPDATE OF b SKIP LOCKED;

-- name: backfill_job
-- Nobody changes a job (tenant_id, job) while a slice of its backfill is made; waits for who does just now.
SELECT FROM jobs WHERE tenant_id = %(tenant)s AND job_id = %(job)s FOR SHARE;

-- name: backfill_busy
-- Whether a job (tenant_id, job) with an overlap policy has a run that has not ended.
SELECT 1 FROM runs
WHERE tenant_id = %(tenant)s AND parent_id = %(job)s AND guarded AND finished_at IS NULL AND ordinal = 0 LIMIT 1;

-- name: backfill_wait
-- A backfill (tenant_id, backfill) whose job is still running looks again in a second.
UPDATE backfills SET next_at = clock_timestamp() + interval '1 second'
WHERE tenant_id = %(tenant)s AND backfill_id = %(backfill)s;

-- name: backfill_span
-- The last row of skipped occurrences of a job (tenant_id, job) before an instant that may reach beyond it.
SELECT scheduled_for, skipped, reason FROM runs
WHERE tenant_id = %(tenant)s AND parent_id = %(job)s AND scheduled_for < %(at)s
  AND scheduled_for >= %(at)s::timestamptz - interval '400 days'
  AND ordinal = 0 AND state = 'SKIPPED' AND reason NOT IN ('calendar', 'dst_gap')
ORDER BY scheduled_for DESC LIMIT 1;

-- name: backfill_shorten
-- A row of skipped occurrences (tenant_id, job, instant) stands for fewer of them from now on.
UPDATE runs SET skipped = %(count)s
WHERE tenant_id = %(tenant)s AND parent_id = %(job)s AND scheduled_for = %(at)s AND ordinal = 0 AND state = 'SKIPPED';

-- name: backfill_rest
-- The occurrences (tenant_id, job) that the shortened row stood for, from an instant on.
INSERT INTO runs (tenant_id, parent_id, scheduled_for, state, shard, priority, version, epoch, due_at, claimed_at,
                  finished_at, target_id, reason, skipped)
SELECT tenant_id, parent_id, %(rest)s, 'SKIPPED', shard, priority, version, epoch, %(rest)s, claimed_at, finished_at,
       target_id, reason, %(count)s
FROM runs
WHERE tenant_id = %(tenant)s AND parent_id = %(job)s AND scheduled_for = %(at)s AND ordinal = 0 AND state = 'SKIPPED'
ON CONFLICT DO NOTHING;

-- name: backfill_runs
-- Occurrences of a job (tenant_id, job, instant) become DUE: new rows, and rows of skipped ones. What
-- has a run already is left alone.
INSERT INTO runs AS r (tenant_id, parent_id, scheduled_for, state, shard, priority, version, timer_at, due_at, target_id,
                       guarded)
SELECT %(tenant)s, %(job)s, scheduled_for, 'DUE', %(shard)s, %(priority)s, %(version)s, clock_timestamp(),
       clock_timestamp(), %(target)s, %(guarded)s
FROM unnest(%(instants)s::timestamptz[]) AS o (scheduled_for)
ON CONFLICT (tenant_id, parent_id, scheduled_for, ordinal) DO UPDATE
SET state = 'DUE', timer_at = clock_timestamp(), due_at = clock_timestamp(), finished_at = NULL, claimed_at = NULL,
    reason = NULL, skipped = 0, version = excluded.version, priority = excluded.priority, guarded = excluded.guarded,
    target_id = excluded.target_id
WHERE r.state = 'SKIPPED'
RETURNING r.scheduled_for, r.timer_at, r.epoch > 0;

-- name: backfill_advance
-- What was done with a slice (tenant_id, backfill), in the transaction that did it.
UPDATE backfills SET
    cursor_at = %(cursor)s, started = started + %(started)s, replaced = replaced + %(replaced)s,
    present = present + %(present)s,
    next_at = greatest(next_at, clock_timestamp() - interval '1 second')
              + greatest(%(started)s, 1) * interval '1 second' / max_per_second,
    state = CASE WHEN %(done)s THEN 'DONE' ELSE state END,
    finished_at = CASE WHEN %(done)s THEN clock_timestamp() END,
    reason = %(reason)s
WHERE tenant_id = %(tenant)s AND backfill_id = %(backfill)s;
