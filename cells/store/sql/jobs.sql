-- name: job_get
-- One job with its current definition (tenant_id, job).
SELECT job_id, shard, state, version, window_ms, offset_ms, next_run_at, due_at, definition, payload, created_at, updated_at
FROM job_rows WHERE tenant_id = %(tenant)s AND job_id = %(job)s;

-- name: job_get_by_key
-- The same by the key its client gave it (tenant_id, job_key).
SELECT job_id, shard, state, version, window_ms, offset_ms, next_run_at, due_at, definition, payload, created_at, updated_at
FROM job_rows WHERE tenant_id = %(tenant)s AND job_key = %(key)s;

-- name: job_list
-- A page of a tenant's jobs, newest first: along the index of first versions.
SELECT j.job_id, shard, state, j.version, window_ms, offset_ms, next_run_at, due_at, j.definition, j.payload, j.created_at, updated_at
FROM job_versions f JOIN job_rows j ON j.tenant_id = f.tenant_id AND j.job_id = f.job_id
WHERE f.tenant_id = %(tenant)s AND f.version = 1
  AND (f.created_at, f.job_id) < (coalesce(%(after_at)s::timestamptz, 'infinity'),
                                  coalesce(%(after_job)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
  AND (%(state)s::text IS NULL OR state = %(state)s)
  AND (%(due_from)s::timestamptz IS NULL OR due_at >= %(due_from)s)
  AND (%(due_until)s::timestamptz IS NULL OR due_at < %(due_until)s)
ORDER BY f.created_at DESC, f.job_id DESC LIMIT %(limit)s;

-- name: job_list_by_facet
-- The same among the jobs that have a term (tag or target), and perhaps a second one.
SELECT j.job_id, shard, state, j.version, window_ms, offset_ms, next_run_at, due_at, j.definition, j.payload, j.created_at, updated_at
FROM job_facets f JOIN job_rows j ON j.tenant_id = f.tenant_id AND j.job_id = f.job_id
WHERE f.tenant_id = %(tenant)s AND f.facet = %(facet)s
  AND (f.created_at, f.job_id) < (coalesce(%(after_at)s::timestamptz, 'infinity'),
                                  coalesce(%(after_job)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
  AND (%(other)s::text IS NULL OR EXISTS (
       SELECT FROM job_facets o WHERE o.tenant_id = f.tenant_id AND o.facet = %(other)s
       AND o.created_at = f.created_at AND o.job_id = f.job_id))
  AND (%(name_from)s::text IS NULL OR EXISTS (
       SELECT FROM (SELECT facet FROM job_facets WHERE tenant_id = f.tenant_id AND job_id = f.job_id OFFSET 0) AS n
       WHERE n.facet >= %(name_from)s AND n.facet < %(name_until)s))
  AND (%(state)s::text IS NULL OR state = %(state)s)
  AND (%(due_from)s::timestamptz IS NULL OR due_at >= %(due_from)s)
  AND (%(due_until)s::timestamptz IS NULL OR due_at < %(due_until)s)
ORDER BY f.created_at DESC, f.job_id DESC LIMIT %(limit)s;

-- name: job_list_by_name
-- The same among the jobs whose name begins with a text; found by name, then put in order.
SELECT j.job_id, shard, state, j.version, window_ms, offset_ms, next_run_at, due_at, j.definition, j.payload, j.created_at, updated_at
FROM job_facets f JOIN job_rows j ON j.tenant_id = f.tenant_id AND j.job_id = f.job_id
WHERE f.tenant_id = %(tenant)s AND f.facet >= %(name_from)s AND f.facet < %(name_until)s
  AND (f.created_at, f.job_id) < (coalesce(%(after_at)s::timestamptz, 'infinity'),
                                  coalesce(%(after_job)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
  AND (%(state)s::text IS NULL OR state = %(state)s)
  AND (%(due_from)s::timestamptz IS NULL OR due_at >= %(due_from)s)
  AND (%(due_until)s::timestamptz IS NULL OR due_at < %(due_until)s)
ORDER BY f.created_at DESC, f.job_id DESC LIMIT %(limit)s;

-- name: job_list_by_due
-- The same among the jobs that are due in a range.
SELECT j.job_id, shard, state, j.version, window_ms, offset_ms, next_run_at, due_at, j.definition, j.payload, j.created_at, updated_at
FROM job_rows j
WHERE j.tenant_id = %(tenant)s
  AND due_at >= coalesce(%(due_from)s::timestamptz, '-infinity') AND due_at < coalesce(%(due_until)s::timestamptz, 'infinity')
  AND (%(state)s::text IS NULL OR state = %(state)s)
  AND (j.created_at, j.job_id) < (coalesce(%(after_at)s::timestamptz, 'infinity'),
                                  coalesce(%(after_job)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
ORDER BY j.created_at DESC, j.job_id DESC LIMIT %(limit)s;

-- name: job_lock
-- A job's state for whoever is about to change it (tenant_id, job).
SELECT state, version, next_run_at, region_policy, created_at
FROM jobs WHERE tenant_id = %(tenant)s AND job_id = %(job)s FOR NO KEY UPDATE;

-- name: job_edit
-- A new version of a job locked in this transaction (tenant_id, job).
UPDATE jobs SET version = version + 1, state = %(state)s, priority = %(priority)s, window_ms = %(window)s,
    offset_ms = %(offset)s, next_run_at = %(next)s, due_at = %(due)s, target_id = %(target)s, name = %(name)s,
    job_key = %(key)s, delay_ms = 0, updated_at = now()
WHERE tenant_id = %(tenant)s AND job_id = %(job)s;

-- name: job_facets_clear
-- The terms of a job (tenant_id, job), before its new ones are written.
DELETE FROM job_facets WHERE tenant_id = %(tenant)s AND job_id = %(job)s;

-- name: job_pause
-- ACTIVE to PAUSED (tenant_id, job): keeps its place, has no timer.
UPDATE jobs SET state = 'PAUSED', due_at = NULL, updated_at = now()
WHERE tenant_id = %(tenant)s AND job_id = %(job)s AND state = 'ACTIVE';

-- name: job_resume
-- PAUSED to ACTIVE (tenant_id, job) with a timer.
UPDATE jobs SET state = 'ACTIVE', next_run_at = %(next)s, due_at = %(due)s, delay_ms = 0, updated_at = now()
WHERE tenant_id = %(tenant)s AND job_id = %(job)s AND state = 'PAUSED';

-- name: job_finish
-- PAUSED to DONE (tenant_id, job): nothing is left to run.
UPDATE jobs SET state = 'DONE', next_run_at = NULL, due_at = NULL, updated_at = now()
WHERE tenant_id = %(tenant)s AND job_id = %(job)s AND state = 'PAUSED';

-- name: job_cancel
-- ACTIVE or PAUSED to CANCELLED (tenant_id, job).
UPDATE jobs SET state = 'CANCELLED', next_run_at = NULL, due_at = NULL, updated_at = now()
WHERE tenant_id = %(tenant)s AND job_id = %(job)s AND state IN ('ACTIVE', 'PAUSED');

-- name: job_passed_over
-- One row for the occurrences of a job, locked in this transaction (tenant_id, job), that will not
-- run: those from the one it waits for on. None where that one has a run already.
INSERT INTO runs (tenant_id, parent_id, scheduled_for, ordinal, state, shard, priority, version, epoch, due_at, claimed_at,
                  finished_at, target_id, reason, skipped)
SELECT tenant_id, job_id, next_run_at, %(ordinal)s, 'SKIPPED', shard, priority, version, %(epoch)s,
       next_run_at + offset_ms * interval '1 millisecond', clock_timestamp(), clock_timestamp(), target_id, %(reason)s,
       %(count)s
FROM jobs WHERE tenant_id = %(tenant)s AND job_id = %(job)s AND next_run_at = %(at)s
ON CONFLICT DO NOTHING
RETURNING scheduled_for;

-- name: job_cancel_runs
-- Runs of a cancelled job (tenant_id, job): waiting ones are cancelled with it; those under way cannot
-- be recalled, but they will not be retried. One statement, since a run that goes from one to
-- the other between two would escape both.
UPDATE runs SET
    state = CASE WHEN state = 'RUNNING' THEN state ELSE 'CANCELLED' END,
    finished_at = CASE WHEN state <> 'RUNNING' THEN clock_timestamp() END,
    reason = CASE WHEN state = 'RUNNING' THEN reason ELSE 'job cancelled' END,
    cancel_requested = cancel_requested OR state = 'RUNNING',
    timer_at = NULL
WHERE tenant_id = %(tenant)s AND parent_id = %(job)s AND kind <> 2
  AND (state IN ('DUE', 'READY', 'RETRY_WAIT') OR (state = 'RUNNING' AND NOT cancel_requested))
RETURNING scheduled_for, ordinal, epoch, state;

-- name: job_trigger
-- The next ordinal of a job (tenant_id, job) that is not cancelled.
UPDATE jobs SET triggers = triggers + 1
WHERE tenant_id = %(tenant)s AND job_id = %(job)s AND state <> 'CANCELLED'
RETURNING triggers, version, priority, shard, target_id;

-- name: run_trigger
-- A run by hand, due at once (tenant_id, job, instant, ordinal).
INSERT INTO runs (tenant_id, parent_id, scheduled_for, ordinal, state, shard, priority, version, timer_at, due_at,
                  target_id, input, traceparent)
VALUES (%(tenant)s, %(job)s, date_trunc('second', %(now)s::timestamptz), %(ordinal)s, 'DUE', %(shard)s, %(priority)s,
        %(version)s, %(now)s, %(now)s, %(target)s, %(input)s, %(traceparent)s);

-- name: run_lock
-- A run's state for whoever is about to cancel it (tenant_id, parent, instant, ordinal).
SELECT state, epoch, cancel_requested FROM runs
WHERE tenant_id = %(tenant)s AND parent_id = %(parent)s AND scheduled_for = %(at)s AND ordinal = %(ordinal)s
FOR NO KEY UPDATE;

-- name: run_cancel
-- A waiting run is cancelled (tenant_id, parent, instant, ordinal).
UPDATE runs SET state = 'CANCELLED', timer_at = NULL, finished_at = clock_timestamp(), cancel_requested = true,
                reason = 'cancelled'
WHERE tenant_id = %(tenant)s AND parent_id = %(parent)s AND scheduled_for = %(at)s AND ordinal = %(ordinal)s
  AND state IN ('DUE', 'READY', 'RETRY_WAIT');

-- name: run_policy
-- The region policy a run is metered under (tenant_id, parent).
SELECT region_policy FROM jobs WHERE tenant_id = %(tenant)s AND job_id = %(parent)s;

-- name: run_cancel_request
-- A run under way is asked to stop (tenant_id, parent, instant, ordinal).
UPDATE runs SET cancel_requested = true
WHERE tenant_id = %(tenant)s AND parent_id = %(parent)s AND scheduled_for = %(at)s AND ordinal = %(ordinal)s
  AND state = 'RUNNING';

-- name: run_get
-- One run (tenant_id, parent, instant, ordinal).
SELECT parent_id, scheduled_for, ordinal, kind, state, priority, version, epoch, series, attempt, timer_at,
       lease_end(lease_expires_at, heartbeat_at, lease_ms), due_at, released_at, claimed_at, started_at, finished_at,
       cancel_requested, target_id, http_status, reason, skipped, attempts::text, worker, heartbeat_at, progress::text
FROM runs
WHERE tenant_id = %(tenant)s AND parent_id = %(parent)s AND scheduled_for = %(at)s AND ordinal = %(ordinal)s;

-- name: run_list
-- A page of a tenant's runs, newest scheduled first. State, target and what else has no index is looked for
-- among the next `looks` of them only: a page costs no more than that, whatever is asked for.
SELECT parent_id, scheduled_for, ordinal, kind, state, priority, version, epoch, series, attempt, timer_at,
       lease_expires_at, due_at, released_at, claimed_at, started_at, finished_at, cancel_requested, target_id,
       http_status, reason, skipped, attempts::text, worker, heartbeat_at, progress::text
FROM (SELECT parent_id, scheduled_for, ordinal, kind, state, priority, version, epoch, series, attempt, timer_at,
             lease_end(lease_expires_at, heartbeat_at, lease_ms) AS lease_expires_at, due_at, released_at, claimed_at, started_at,
             finished_at, cancel_requested, target_id, http_status, reason, skipped, attempts, worker, heartbeat_at, progress
      FROM runs
      WHERE tenant_id = %(tenant)s
        AND scheduled_for >= coalesce(%(from)s::timestamptz, '-infinity')
        AND scheduled_for < coalesce(%(until)s::timestamptz, 'infinity')
        AND (%(after_at)s::timestamptz IS NULL
             OR (scheduled_for, parent_id, ordinal) < (%(after_at)s, %(after_parent)s::uuid, %(after_ordinal)s::int))
      ORDER BY scheduled_for DESC, parent_id DESC, ordinal DESC LIMIT %(looks)s) AS looked
WHERE kind <> 2 AND (%(states)s::text[] IS NULL OR state = ANY(%(states)s::text[]))
  AND (%(target)s::text IS NULL OR target_id = %(target)s)
  AND (%(due_from)s::timestamptz IS NULL OR due_at >= %(due_from)s)
  AND (%(due_until)s::timestamptz IS NULL OR due_at < %(due_until)s)
  AND (%(finished_from)s::timestamptz IS NULL OR finished_at >= %(finished_from)s)
  AND (%(finished_until)s::timestamptz IS NULL OR finished_at < %(finished_until)s)
ORDER BY scheduled_for DESC, parent_id DESC, ordinal DESC LIMIT %(limit)s;

-- name: run_list_reached
-- The last run that `run_list` looks at (tenant_id); none where it sees the end of the list.
SELECT parent_id, scheduled_for, ordinal
FROM runs
WHERE tenant_id = %(tenant)s
  AND scheduled_for >= coalesce(%(from)s::timestamptz, '-infinity')
  AND scheduled_for < coalesce(%(until)s::timestamptz, 'infinity')
  AND (%(after_at)s::timestamptz IS NULL
       OR (scheduled_for, parent_id, ordinal) < (%(after_at)s, %(after_parent)s::uuid, %(after_ordinal)s::int))
ORDER BY scheduled_for DESC, parent_id DESC, ordinal DESC OFFSET %(looks)s - 1 LIMIT 1;

-- name: run_list_of_job
-- The same as `run_list` for one job (tenant_id, job).
SELECT parent_id, scheduled_for, ordinal, kind, state, priority, version, epoch, series, attempt, timer_at,
       lease_expires_at, due_at, released_at, claimed_at, started_at, finished_at, cancel_requested, target_id,
       http_status, reason, skipped, attempts::text, worker, heartbeat_at, progress::text
FROM (SELECT parent_id, scheduled_for, ordinal, kind, state, priority, version, epoch, series, attempt, timer_at,
             lease_end(lease_expires_at, heartbeat_at, lease_ms) AS lease_expires_at, due_at, released_at, claimed_at, started_at,
             finished_at, cancel_requested, target_id, http_status, reason, skipped, attempts, worker, heartbeat_at, progress
      FROM runs
      WHERE tenant_id = %(tenant)s AND parent_id = %(parent)s
        AND scheduled_for >= coalesce(%(from)s::timestamptz, '-infinity')
        AND scheduled_for < coalesce(%(until)s::timestamptz, 'infinity')
        AND (%(after_at)s::timestamptz IS NULL OR (scheduled_for, ordinal) < (%(after_at)s, %(after_ordinal)s::int))
      ORDER BY scheduled_for DESC, ordinal DESC LIMIT %(looks)s) AS looked
WHERE kind <> 2 AND (%(states)s::text[] IS NULL OR state = ANY(%(states)s::text[]))
  AND (%(target)s::text IS NULL OR target_id = %(target)s)
  AND (%(due_from)s::timestamptz IS NULL OR due_at >= %(due_from)s)
  AND (%(due_until)s::timestamptz IS NULL OR due_at < %(due_until)s)
  AND (%(finished_from)s::timestamptz IS NULL OR finished_at >= %(finished_from)s)
  AND (%(finished_until)s::timestamptz IS NULL OR finished_at < %(finished_until)s)
ORDER BY scheduled_for DESC, ordinal DESC LIMIT %(limit)s;

-- name: run_list_of_job_reached
-- The last run that `run_list_of_job` looks at (tenant_id, job); none where it sees the end of the list.
SELECT parent_id, scheduled_for, ordinal
FROM runs
WHERE tenant_id = %(tenant)s AND parent_id = %(parent)s
  AND scheduled_for >= coalesce(%(from)s::timestamptz, '-infinity')
  AND scheduled_for < coalesce(%(until)s::timestamptz, 'infinity')
  AND (%(after_at)s::timestamptz IS NULL OR (scheduled_for, ordinal) < (%(after_at)s, %(after_ordinal)s::int))
ORDER BY scheduled_for DESC, ordinal DESC OFFSET %(looks)s - 1 LIMIT 1;

-- name: run_last_of_jobs
-- The latest run that some jobs had (tenant_id, jobs) in a range of days.
SELECT r.*
FROM unnest(%(jobs)s::uuid[]) AS j (job_id) CROSS JOIN LATERAL (
    SELECT parent_id, scheduled_for, ordinal, kind, state, priority, version, epoch, series, attempt, timer_at,
           lease_end(lease_expires_at, heartbeat_at, lease_ms), due_at, released_at, claimed_at, started_at, finished_at,
           cancel_requested, target_id, http_status, reason, skipped, attempts::text, worker, heartbeat_at, progress::text
    FROM runs
    WHERE tenant_id = %(tenant)s AND parent_id = j.job_id AND kind = 0
      AND scheduled_for >= %(since)s AND scheduled_for < %(until)s
    ORDER BY scheduled_for DESC, ordinal DESC LIMIT 1
) AS r;

-- name: dlq_list
-- Open dead letters of a tenant, newest first.
SELECT parent_id, scheduled_for, ordinal, series, fingerprint, reason, target_id, http_status, error, attempt, failed_at
FROM dlq
WHERE tenant_id = %(tenant)s AND state = 'OPEN'
  AND (%(target)s::text IS NULL OR target_id = %(target)s)
  AND (%(fingerprint)s::text IS NULL OR fingerprint = %(fingerprint)s)
  AND (%(job)s::uuid IS NULL OR parent_id = %(job)s)
  AND (%(reason)s::text IS NULL OR reason = %(reason)s)
  AND (%(failed_from)s::timestamptz IS NULL OR failed_at >= %(failed_from)s)
  AND (%(failed_until)s::timestamptz IS NULL OR failed_at < %(failed_until)s)
  AND (%(after_at)s::timestamptz IS NULL
       OR (failed_at, parent_id, scheduled_for, ordinal)
          < (%(after_at)s, %(after_parent)s::uuid, %(after_scheduled)s::timestamptz, %(after_ordinal)s::int))
ORDER BY failed_at DESC, parent_id DESC, scheduled_for DESC, ordinal DESC LIMIT %(limit)s;

-- name: dlq_groups
-- Open dead letters of a tenant by fingerprint, biggest first, among the newest `looks` of them; and
-- whether there are more.
SELECT fingerprint, target_id, http_status, (array_agg(error ORDER BY failed_at DESC))[1], count(*),
       min(failed_at), max(failed_at),
       EXISTS (SELECT FROM dlq WHERE tenant_id = %(tenant)s AND state = 'OPEN'
               ORDER BY failed_at DESC OFFSET %(looks)s LIMIT 1)
FROM (SELECT fingerprint, target_id, http_status, error, failed_at
      FROM dlq WHERE tenant_id = %(tenant)s AND state = 'OPEN'
      ORDER BY failed_at DESC LIMIT %(looks)s) AS newest
GROUP BY fingerprint, target_id, http_status
ORDER BY count(*) DESC, fingerprint LIMIT %(limit)s;

-- name: key_get
-- A stored answer (tenant_id, route, key).
SELECT fingerprint, status, body FROM idempotency_keys
WHERE tenant_id = %(tenant)s AND route = %(route)s AND key = %(key)s;

-- name: key_put
-- An answer to be given again (tenant_id, route, key); fails where somebody was faster.
INSERT INTO idempotency_keys (tenant_id, route, key, fingerprint, status, body)
VALUES (%(tenant)s, %(route)s, %(key)s, %(fingerprint)s, %(status)s, %(body)s);
