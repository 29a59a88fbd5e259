-- name: complete_runs
-- Ends attempts (tenant_id, parent, instant, ordinal) that are still RUNNING under the epoch they
-- were claimed with, where the tenant is still placed here: the outcome of a call that was made is
-- a fact, so only SEALED and MOVED refuse it. A cancel that was asked for meanwhile turns success
-- into SUCCEEDED_AFTER_CANCEL and a retry into CANCELLED.
UPDATE runs r
SET state = CASE WHEN NOT r.cancel_requested THEN c.state
                 WHEN c.state = 'SUCCEEDED' THEN 'SUCCEEDED_AFTER_CANCEL'
                 WHEN c.state = 'RETRY_WAIT' THEN 'CANCELLED'
                 ELSE c.state END,
    timer_at = CASE WHEN c.state = 'RETRY_WAIT' AND NOT r.cancel_requested THEN c.timer_at END,
    finished_at = CASE WHEN c.state <> 'RETRY_WAIT' OR r.cancel_requested THEN coalesce(c.finished_at, clock_timestamp()) END,
    lease_expires_at = NULL,
    started_at = c.started_at, http_status = c.http_status, reason = c.reason,
    attempts = r.attempts || c.attempt
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(epochs)s::bigint[], %(states)s::text[], %(timers)s::timestamptz[], %(started)s::timestamptz[],
            %(finished)s::timestamptz[], %(statuses)s::smallint[], %(reasons)s::text[], %(attempts)s::jsonb[])
     WITH ORDINALITY AS c (tenant_id, parent_id, scheduled_for, ordinal, epoch, state, timer_at, started_at, finished_at,
                           http_status, reason, attempt, i),
     tenants t
WHERE r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id
  AND r.scheduled_for = c.scheduled_for AND r.ordinal = c.ordinal
  AND r.state = 'RUNNING' AND r.epoch = c.epoch
  AND t.tenant_id = c.tenant_id AND t.state IN ('ACTIVE', 'BARRIER', 'SUSPENDED')
RETURNING c.i::int, r.state, r.attempt, r.series, r.priority, r.shard, r.guarded AND r.finished_at IS NOT NULL;

-- name: complete_results
-- What workflows (tenant_id, execution, ordinal) were told in this transaction of steps that ended has all of what
-- those answered; their attempts keep its beginning. Other things in an inbox are not read.
UPDATE workflow_inbox i
SET data = convert_to(jsonb_set(convert_from(i.data, 'UTF8')::jsonb, '{attempts,-1,body}', to_jsonb(c.result))::text, 'UTF8')
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(ordinals)s::int[], %(results)s::text[])
     AS c (tenant_id, run_id, ordinal, result)
WHERE i.tenant_id = c.tenant_id AND i.run_id = c.run_id AND i.xmin = pg_current_xact_id()::xid
  AND CASE WHEN i.kind = 'ACTIVITY' THEN (convert_from(i.data, 'UTF8')::jsonb ->> 'ordinal')::int = c.ordinal END;

-- name: complete_dead
-- Runs that ended FAILED or UNKNOWN wait in the DLQ (tenant_id, parent, instant, ordinal, series). What is
-- there of an earlier end of the same series is open again, with the new reason.
INSERT INTO dlq (tenant_id, parent_id, scheduled_for, ordinal, series, fingerprint, reason, target_id, http_status,
                 error, attempt)
SELECT tenant_id, parent_id, scheduled_for, ordinal, series, fingerprint, reason, target_id, http_status, error, attempt
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(series)s::int[], %(fingerprints)s::text[], %(reasons)s::text[], %(targets)s::text[],
            %(statuses)s::smallint[], %(errors)s::text[], %(attempts)s::int[])
     AS d (tenant_id, parent_id, scheduled_for, ordinal, series, fingerprint, reason, target_id, http_status, error, attempt)
ON CONFLICT (tenant_id, parent_id, scheduled_for, ordinal, series) DO UPDATE
SET state = 'OPEN', fingerprint = excluded.fingerprint, reason = excluded.reason, target_id = excluded.target_id,
    http_status = excluded.http_status, error = excluded.error, attempt = excluded.attempt, failed_at = now(),
    operation_id = NULL, changed_at = NULL, changed_by = NULL;

-- name: complete_gone
-- Targets (tenant_id, target) that said 410.
UPDATE targets t SET state = 'GONE', version = t.version + 1, updated_at = now()
FROM unnest(%(tenants)s::uuid[], %(targets)s::text[]) AS g (tenant_id, target_id)
WHERE t.tenant_id = g.tenant_id AND t.target_id = g.target_id AND t.state = 'APPROVED'
RETURNING t.tenant_id, t.target_id, t.version;

-- name: release_runs
-- Claims given back uncalled (tenant_id, parent, instant, ordinal): due now, or so long after, the attempt not counted.
UPDATE runs r
SET state = CASE WHEN r.cancel_requested THEN 'CANCELLED' ELSE 'RETRY_WAIT' END,
    timer_at = CASE WHEN NOT r.cancel_requested THEN clock_timestamp() + %(after_ms)s * interval '1 millisecond' END,
    finished_at = CASE WHEN r.cancel_requested THEN clock_timestamp() END,
    lease_expires_at = NULL, attempt = r.attempt - 1
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(epochs)s::bigint[]) WITH ORDINALITY AS c (tenant_id, parent_id, scheduled_for, ordinal, epoch, i),
     tenants t
WHERE r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id
  AND r.scheduled_for = c.scheduled_for AND r.ordinal = c.ordinal
  AND r.state = 'RUNNING' AND r.epoch = c.epoch
  AND t.tenant_id = c.tenant_id AND t.state IN ('ACTIVE', 'BARRIER', 'SUSPENDED')
RETURNING c.i::int, r.state, r.attempt, r.timer_at;

-- name: reap_suspects
-- Runs (tenant_id, parent, instant, ordinal, epoch) of hosts whose lease has ended, runs whose own
-- lease ended 5 s ago, and those of the auditing host that it does not know of; of any active tenant.
-- None of them comes back: a lapsed host never does, and a run only under another epoch.
-- Three narrow looks at the index of leases. It keeps an entry of everything that has ended until a
-- vacuum, which somebody's open transaction may put off for hours: so of live hosts only leases are
-- looked at that ended since the last look, and by the auditor those that have not ended.
SELECT s.tenant_id, s.parent_id, s.scheduled_for, s.ordinal, s.epoch, s.name FROM (
    SELECT r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, r.epoch, h.name
    FROM hosts h JOIN runs r ON r.host_id = h.host_id AND r.lease_expires_at IS NOT NULL
    WHERE h.state = 'LIVE' AND h.lease_expires_at < clock_timestamp()
    UNION ALL
    SELECT r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, r.epoch, h.name
    FROM hosts h JOIN runs r ON r.host_id = h.host_id AND r.lease_expires_at < now() - interval '5 seconds'
             AND r.lease_expires_at >= now() - %(back_ms)s * interval '1 millisecond'
    WHERE h.state = 'LIVE' AND h.lease_expires_at >= clock_timestamp()
    UNION ALL
    SELECT r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, r.epoch, h.name
    FROM hosts h JOIN runs r ON r.host_id = h.host_id AND r.lease_expires_at >= now() - interval '5 seconds'
    WHERE h.state = 'LIVE' AND h.host_id = %(auditor)s
      AND r.claimed_at < clock_timestamp() - %(older_than_ms)s * interval '1 millisecond'
      AND (r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, r.epoch) NOT IN (
          SELECT * FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[],
                               %(ordinals)s::int[], %(epochs)s::bigint[]))
) AS s
JOIN tenants t ON t.tenant_id = s.tenant_id AND t.state = 'ACTIVE'
LIMIT %(limit)s;

-- name: reap_runs
-- Takes suspects (tenant_id, parent, instant, ordinal, epoch, host's name) that still are RUNNING
-- under that epoch: the attempt is LOST and costs nothing, the run is due now; poison after too many
-- deaths; cancelled where that was asked for; unknown where it may run but once.
WITH lost AS (
    SELECT r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, s.name,
           CASE WHEN r.cancel_requested THEN 'CANCELLED'
                WHEN r.at_most_once THEN 'UNKNOWN'
                WHEN r.deaths + 1 >= %(poison_deaths)s THEN 'FAILED'
                ELSE 'RETRY_WAIT' END AS becomes
    FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
                %(epochs)s::bigint[], %(names)s::text[]) AS s (tenant_id, parent_id, scheduled_for, ordinal, epoch, name)
    JOIN tenants t ON t.tenant_id = s.tenant_id AND t.state = 'ACTIVE'
    JOIN runs r ON r.tenant_id = s.tenant_id AND r.parent_id = s.parent_id
               AND r.scheduled_for = s.scheduled_for AND r.ordinal = s.ordinal
               AND r.state = 'RUNNING' AND r.epoch = s.epoch
    FOR NO KEY UPDATE OF r SKIP LOCKED
)
UPDATE runs r
SET state = lost.becomes, deaths = r.deaths + 1, attempt = greatest(r.attempt - 1, 0), lease_expires_at = NULL,
    timer_at = CASE WHEN lost.becomes = 'RETRY_WAIT' THEN clock_timestamp() END,
    finished_at = CASE WHEN lost.becomes <> 'RETRY_WAIT' THEN clock_timestamp() END,
    reason = CASE lost.becomes WHEN 'FAILED' THEN 'poison' WHEN 'UNKNOWN' THEN 'lost with its holder' END,
    attempts = r.attempts || jsonb_build_object(
        'number', r.attempt, 'series', r.series, 'epoch', r.epoch, 'outcome', 'LOST', 'host', lost.name,
        'error', CASE WHEN r.task_queue IS NULL THEN 'executor lost' ELSE 'worker lost' END,
        'claimed_at', to_char(r.claimed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        'finished_at', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
FROM lost
WHERE r.tenant_id = lost.tenant_id AND r.parent_id = lost.parent_id
  AND r.scheduled_for = lost.scheduled_for AND r.ordinal = lost.ordinal
RETURNING r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, r.state, r.epoch, r.series, r.attempt, r.priority,
          r.shard, r.timer_at, r.target_id, (SELECT j.region_policy FROM jobs j
                                             WHERE j.tenant_id = r.tenant_id AND j.job_id = r.parent_id);
