-- name: claim_definitions
-- Immutable versions of some jobs, by position in the request (tenant_id, job, version).
SELECT w.i::int, v.definition, v.payload, v.traceparent
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[], %(versions)s::int[]) WITH ORDINALITY AS w (tenant_id, job_id, version, i)
JOIN job_versions v USING (tenant_id, job_id, version);

-- name: claim_lock_jobs
-- Locks the due jobs that still are what the members say and whose tenants are active here and
-- not paused; passes over those that somebody else holds.
SELECT w.i::int, j.version, j.due_at, j.offset_ms, j.priority, j.shard, t.ownership_epoch, j.delay_ms, clock_timestamp()
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[], %(instants)s::timestamptz[]) WITH ORDINALITY AS w (tenant_id, job_id, scheduled_for, i)
JOIN tenants t ON t.tenant_id = w.tenant_id AND t.state = 'ACTIVE' AND NOT t.paused
JOIN jobs j ON j.tenant_id = w.tenant_id AND j.job_id = w.job_id
WHERE j.state = 'ACTIVE' AND j.next_run_at = w.scheduled_for AND j.due_at <= clock_timestamp()
FOR NO KEY UPDATE OF j SKIP LOCKED;

-- name: claim_lock_runs
-- Locks the waiting runs that are due and whose tenants are active here, with what they will
-- send; passes over those that somebody else holds. Found by their keys: `coalesce` keeps the index of timers out of
-- it, which looks empty to an ANALYZE that comes when nothing waits, and would be walked for each.
SELECT w.i::int, r.version, r.epoch, r.series, r.attempt, r.priority, r.shard, r.due_at, r.traceparent,
       t.ownership_epoch, coalesce(r.spec, v.definition), coalesce(r.input, v.payload), v.traceparent,
       r.callback, clock_timestamp()
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[])
     WITH ORDINALITY AS w (tenant_id, parent_id, scheduled_for, ordinal, i)
JOIN tenants t ON t.tenant_id = w.tenant_id AND t.state = 'ACTIVE' AND NOT t.paused
JOIN runs r ON r.tenant_id = w.tenant_id AND r.parent_id = w.parent_id
           AND r.scheduled_for = w.scheduled_for AND r.ordinal = w.ordinal
LEFT JOIN LATERAL (SELECT * FROM job_versions j WHERE r.spec IS NULL AND j.tenant_id = r.tenant_id
                   AND j.job_id = r.parent_id AND j.version = r.version OFFSET 0) AS v ON true
WHERE coalesce(r.spec, v.definition) IS NOT NULL AND r.state IN ('DUE', 'RETRY_WAIT')
  AND coalesce(r.timer_at, 'infinity') <= clock_timestamp()
FOR NO KEY UPDATE OF r SKIP LOCKED;

-- name: claim_insert_runs
-- The runs of claimed occurrences (tenant_id, job, instant, ordinal), held by this host.
INSERT INTO runs (tenant_id, parent_id, scheduled_for, ordinal, state, shard, priority, version, epoch, attempt,
                  host_id, lease_expires_at, due_at, released_at, claimed_at, target_id, at_most_once, guarded)
SELECT tenant_id, parent_id, scheduled_for, ordinal, 'RUNNING', shard, priority, version, epoch, 1,
       %(host)s, lease_until, due_at, released_at, %(now)s, target_id, at_most_once, guarded
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(shards)s::smallint[], %(priorities)s::smallint[], %(versions)s::int[], %(epochs)s::bigint[],
            %(leases)s::timestamptz[], %(dues)s::timestamptz[], %(released)s::timestamptz[], %(targets)s::text[],
            %(once)s::boolean[], %(guards)s::boolean[])
     AS c (tenant_id, parent_id, scheduled_for, ordinal, shard, priority, version, epoch, lease_until, due_at,
           released_at, target_id, at_most_once, guarded);

-- name: claim_insert_skipped
-- Occurrences that deliberately do not run (tenant_id, job, instant), with the reason.
INSERT INTO runs (tenant_id, parent_id, scheduled_for, state, shard, priority, version, epoch, due_at, claimed_at,
                  finished_at, target_id, reason, skipped)
SELECT tenant_id, parent_id, scheduled_for, 'SKIPPED', shard, priority, version, epoch, due_at, %(now)s,
       %(now)s, target_id, reason, skipped
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(shards)s::smallint[],
            %(priorities)s::smallint[], %(versions)s::int[], %(epochs)s::bigint[], %(dues)s::timestamptz[],
            %(targets)s::text[], %(reasons)s::text[], %(skips)s::int[])
     AS c (tenant_id, parent_id, scheduled_for, shard, priority, version, epoch, due_at, target_id, reason, skipped);

-- name: claim_advance_jobs
-- Sets the next timer of jobs locked in this transaction (tenant_id, job), or ends them.
UPDATE jobs j
SET next_run_at = c.next_run_at, due_at = c.due_at, delay_ms = 0,
    state = CASE WHEN c.due_at IS NULL THEN 'DONE' ELSE 'ACTIVE' END,
    updated_at = CASE WHEN c.due_at IS NULL THEN now() ELSE j.updated_at END
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[], %(nexts)s::timestamptz[], %(dues)s::timestamptz[])
     AS c (tenant_id, job_id, next_run_at, due_at)
WHERE j.tenant_id = c.tenant_id AND j.job_id = c.job_id;

-- name: claim_update_runs
-- Waiting runs locked in this transaction (tenant_id, parent, instant, ordinal) become RUNNING.
UPDATE runs r
SET state = 'RUNNING', epoch = c.epoch, attempt = r.attempt + 1, timer_at = NULL, host_id = %(host)s,
    lease_expires_at = c.lease_until, released_at = c.released_at, claimed_at = %(now)s, started_at = NULL, reason = NULL,
    at_most_once = c.at_most_once
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(epochs)s::bigint[], %(leases)s::timestamptz[], %(released)s::timestamptz[], %(once)s::boolean[])
     AS c (tenant_id, parent_id, scheduled_for, ordinal, epoch, lease_until, released_at, at_most_once)
WHERE r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id
  AND r.scheduled_for = c.scheduled_for AND r.ordinal = c.ordinal;

-- name: claim_existing_runs
-- Which of some occurrences (tenant_id, parent, instant, ordinal) have a run already.
SELECT w.i::int
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[])
     WITH ORDINALITY AS w (tenant_id, parent_id, scheduled_for, ordinal, i)
WHERE EXISTS (SELECT FROM runs r WHERE r.tenant_id = w.tenant_id AND r.parent_id = w.parent_id
              AND r.scheduled_for = w.scheduled_for AND r.ordinal = w.ordinal);

-- name: claim_unlocked_jobs
-- Which of the jobs that were not won still wait for that very occurrence (tenant_id, job, instant):
-- ahead of the database's clock, or locked just then by a writer that did not claim.
SELECT w.i::int
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[], %(instants)s::timestamptz[]) WITH ORDINALITY AS w (tenant_id, job_id, scheduled_for, i)
JOIN tenants t ON t.tenant_id = w.tenant_id AND t.state = 'ACTIVE'
JOIN jobs j ON j.tenant_id = w.tenant_id AND j.job_id = w.job_id
WHERE j.state = 'ACTIVE' AND j.next_run_at = w.scheduled_for;

-- name: claim_unlocked_runs
-- The same for runs (tenant_id, parent, instant, ordinal).
SELECT w.i::int
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[])
     WITH ORDINALITY AS w (tenant_id, parent_id, scheduled_for, ordinal, i)
JOIN tenants t ON t.tenant_id = w.tenant_id AND t.state = 'ACTIVE'
JOIN runs r ON r.tenant_id = w.tenant_id AND r.parent_id = w.parent_id
           AND r.scheduled_for = w.scheduled_for AND r.ordinal = w.ordinal
WHERE r.state IN ('DUE', 'RETRY_WAIT') AND coalesce(r.timer_at, 'infinity') < now() + interval '1 day';
