-- name: returned_waiting
-- Intents of a lost region that wait to be judged, in order, of tenants that may be written for or have gone elsewhere.
-- Whether STRICT waits for what that region has.
SELECT c.tenant_id, c.region, c.epoch, c.host_id, c.seq, c.position, c.at, c.verb, c.thing, c.policy, c.detail,
       t.state, t.ownership_epoch, t.config::text,
       EXISTS (SELECT FROM unread_sites u
               WHERE c.region IN (u.region, u.lost) AND c.epoch < u.epoch AND u.settled_at IS NULL)
FROM reconciliation c JOIN tenants t USING (tenant_id)
WHERE c.outcome IS NULL AND c.kind = 'INTENT' AND t.state IN ('ACTIVE', 'MOVED')
ORDER BY c.entry
LIMIT %(limit)s;

-- name: returned_settle
-- An entry (tenant_id, its place in that region's journal) was judged; no row where it had been before.
UPDATE reconciliation SET outcome = %(outcome)s, note = %(note)s, settled_at = clock_timestamp()
WHERE tenant_id = %(tenant)s AND region = %(region)s AND epoch = %(epoch)s AND host_id = %(host)s AND seq = %(seq)s
  AND position = %(position)s AND outcome IS NULL
RETURNING position;

-- name: returned_before
-- What became of the last intent before this one (tenant_id, its place in that region's journal) that had one of some verbs
-- and was about the same thing.
SELECT b.verb, b.outcome, b.note FROM reconciliation e JOIN reconciliation b USING (tenant_id, region, thing)
WHERE e.tenant_id = %(tenant)s AND e.region = %(region)s AND e.epoch = %(epoch)s AND e.host_id = %(host)s AND e.seq = %(seq)s
  AND e.position = %(position)s AND b.verb = ANY(%(verbs)s::text[]) AND b.entry < e.entry
ORDER BY b.entry DESC LIMIT 1;

-- name: returned_came_along
-- What else that region did with a thing (tenant_id, thing) that is imported whole.
UPDATE reconciliation SET outcome = 'IMPORTED', settled_at = clock_timestamp()
WHERE tenant_id = %(tenant)s AND thing = ANY(%(things)s::text[]) AND region = %(region)s AND outcome IS NULL;

-- name: returned_have_job
-- Whether a job (tenant_id, job) is here, and whether another one has its key.
SELECT EXISTS (SELECT FROM jobs WHERE tenant_id = %(tenant)s AND job_id = %(job)s),
       EXISTS (SELECT FROM jobs WHERE tenant_id = %(tenant)s AND job_key = %(key)s AND job_id <> %(job)s);

-- name: returned_lock_job
-- How a job (tenant_id, job) stands.
SELECT version, state, next_run_at, due_at FROM jobs WHERE tenant_id = %(tenant)s AND job_id = %(job)s FOR UPDATE;

-- name: returned_drop_job
-- A job (tenant_id, job) gives way to what was confirmed of it.
WITH versions AS (DELETE FROM job_versions WHERE tenant_id = %(tenant)s AND job_id = %(job)s),
facets AS (DELETE FROM job_facets WHERE tenant_id = %(tenant)s AND job_id = %(job)s)
DELETE FROM jobs WHERE tenant_id = %(tenant)s AND job_id = %(job)s;

-- name: returned_drop_runs
-- Runs of a tenant (tenant_id) that have not ended here give way to what was confirmed of them.
DELETE FROM runs r USING jsonb_to_recordset(%(rows)s::jsonb) AS n (parent_id uuid, scheduled_for timestamptz, ordinal int)
WHERE r.tenant_id = %(tenant)s AND r.parent_id = n.parent_id AND r.scheduled_for = n.scheduled_for
  AND r.ordinal = n.ordinal AND r.finished_at IS NULL;

-- name: returned_put_jobs
-- Jobs of a tenant (tenant_id) as the region had them.
INSERT INTO jobs SELECT * FROM jsonb_populate_recordset(NULL::jobs, %(rows)s::jsonb) AS r
WHERE r.tenant_id = %(tenant)s;

-- name: returned_put_job_versions
-- Versions of a tenant (tenant_id) as the region had them.
INSERT INTO job_versions SELECT * FROM jsonb_populate_recordset(NULL::job_versions, %(rows)s::jsonb) AS r
WHERE r.tenant_id = %(tenant)s;

-- name: returned_put_job_facets
-- Search terms of a tenant (tenant_id) as the region had them.
INSERT INTO job_facets SELECT * FROM jsonb_populate_recordset(NULL::job_facets, %(rows)s::jsonb) AS r
WHERE r.tenant_id = %(tenant)s ON CONFLICT DO NOTHING;

-- name: returned_put_dlq
-- Dead letters of a tenant (tenant_id) as the region had them.
INSERT INTO dlq SELECT * FROM jsonb_populate_recordset(NULL::dlq, %(rows)s::jsonb) AS r
WHERE r.tenant_id = %(tenant)s ON CONFLICT DO NOTHING;

-- name: returned_put_runs
-- Runs of a tenant (tenant_id) as the region had them. What had ended has ended and is never run again; what was
-- under way there is nobody's now: it is due or ready again under its own key, or unknown where it may run but once, or
-- where that was confirmed (unknown). A workflow hears of its steps by an update.
INSERT INTO runs
SELECT r.* FROM jsonb_array_elements(%(rows)s::jsonb) AS n (given)
CROSS JOIN LATERAL jsonb_populate_record(NULL::runs, given || CASE
    WHEN given ->> 'state' <> 'RUNNING' THEN '{"host_id": null}'::jsonb
    WHEN (given ->> 'kind')::int = 1 AND ((given ->> 'at_most_once')::boolean OR %(unknown)s) THEN jsonb_build_object(
        'state', 'RETRY_WAIT', 'host_id', NULL, 'lease_expires_at', NULL, 'timer_at', clock_timestamp(),
        'reason', 'lost with its region')
    WHEN (given ->> 'at_most_once')::boolean OR %(unknown)s THEN jsonb_build_object(
        'state', 'UNKNOWN', 'host_id', NULL, 'lease_expires_at', NULL, 'finished_at', clock_timestamp(),
        'reason', 'lost with its region')
    WHEN (given ->> 'cancel_requested')::boolean THEN jsonb_build_object(
        'state', 'CANCELLED', 'host_id', NULL, 'lease_expires_at', NULL, 'finished_at', clock_timestamp(),
        'reason', 'cancelled')
    WHEN given ->> 'task_queue' IS NOT NULL THEN jsonb_build_object('state', 'READY', 'host_id', NULL,
        'lease_expires_at', NULL, 'attempt', greatest((given ->> 'attempt')::int - 1, 0))
    ELSE jsonb_build_object('state', 'RETRY_WAIT', 'host_id', NULL, 'lease_expires_at', NULL, 'worker', NULL,
        'timer_at', clock_timestamp(), 'attempt', greatest((given ->> 'attempt')::int - 1, 0))
END) AS r
WHERE r.tenant_id = %(tenant)s
ON CONFLICT DO NOTHING;

-- name: returned_unknown_steps
-- A workflow's steps (tenant_id, parent) of which nobody knows whether they were done: it hears of them.
UPDATE runs SET state = 'UNKNOWN', timer_at = NULL, finished_at = clock_timestamp()
WHERE tenant_id = %(tenant)s AND parent_id = %(parent)s AND kind = 1 AND state = 'RETRY_WAIT'
  AND reason = 'lost with its region';

-- name: returned_unknown_letters
-- Runs (tenant_id, parent) that came in as unknown are dead letters.
INSERT INTO dlq (tenant_id, parent_id, scheduled_for, ordinal, series, fingerprint, reason, target_id, attempt)
SELECT tenant_id, parent_id, scheduled_for, ordinal, series, coalesce(target_id, '') || ' lost with its region', 'UNKNOWN',
       target_id, attempt
FROM runs WHERE tenant_id = %(tenant)s AND parent_id = %(parent)s AND state = 'UNKNOWN' AND reason = 'lost with its region'
ON CONFLICT DO NOTHING;

-- name: returned_ordinals
-- A job (tenant_id, job) gives no ordinal again that the region gave.
UPDATE jobs SET triggers = greatest(triggers, %(ordinal)s) WHERE tenant_id = %(tenant)s AND job_id = %(job)s
RETURNING state;

-- name: returned_have_workflow
-- Whether an execution (tenant_id, run) is here, and whether another one has its workflow id.
SELECT EXISTS (SELECT FROM workflows WHERE tenant_id = %(tenant)s AND run_id = %(run)s),
       EXISTS (SELECT FROM workflows WHERE tenant_id = %(tenant)s AND workflow_id = %(workflow)s AND holds_id);

-- name: returned_lock_workflow
-- How far an execution (tenant_id, run) is.
SELECT next_seq FROM workflows WHERE tenant_id = %(tenant)s AND run_id = %(run)s FOR UPDATE;

-- name: returned_drop_workflow
-- An execution (tenant_id, run) gives way to what was confirmed of it.
WITH events AS (DELETE FROM workflow_events WHERE tenant_id = %(tenant)s AND run_id = %(run)s),
inbox AS (DELETE FROM workflow_inbox WHERE tenant_id = %(tenant)s AND run_id = %(run)s),
signals AS (DELETE FROM workflow_signals WHERE tenant_id = %(tenant)s AND run_id = %(run)s),
steps AS (DELETE FROM runs WHERE tenant_id = %(tenant)s AND parent_id = %(run)s AND kind = 1)
DELETE FROM workflows WHERE tenant_id = %(tenant)s AND run_id = %(run)s;

-- name: returned_put_workflows
-- Executions of a tenant (tenant_id) as the region had them.
INSERT INTO workflows SELECT * FROM jsonb_populate_recordset(NULL::workflows, %(rows)s::jsonb) AS r
WHERE r.tenant_id = %(tenant)s;

-- name: returned_put_workflow_events
-- Histories of a tenant (tenant_id) as the region had them.
INSERT INTO workflow_events SELECT * FROM jsonb_populate_recordset(NULL::workflow_events, %(rows)s::jsonb) AS r
WHERE r.tenant_id = %(tenant)s;

-- name: returned_put_workflow_signals
-- Signals of a tenant (tenant_id) that were taken in the region.
INSERT INTO workflow_signals SELECT * FROM jsonb_populate_recordset(NULL::workflow_signals, %(rows)s::jsonb) AS r
WHERE r.tenant_id = %(tenant)s
ON CONFLICT DO NOTHING;

-- name: returned_put_workflow_inbox
-- What waited there to be recorded, of a tenant (tenant_id), in order.
INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data, at)
SELECT tenant_id, run_id, shard, kind, data, at FROM jsonb_populate_recordset(NULL::workflow_inbox, %(rows)s::jsonb)
WHERE tenant_id = %(tenant)s
ORDER BY position;

-- name: returned_list
-- A page of what was reconciled for a tenant (tenant_id), oldest first. What became of an effect is seen in its run:
-- whether it was called again under the same key.
SELECT c.region, c.epoch, c.at, c.entry, c.kind, c.verb, c.thing, c.policy, c.run_key, c.run_epoch, c.state,
       c.detail, c.note, c.settled_at, r.state, r.epoch, r.finished_at,
       coalesce(c.outcome, CASE WHEN c.kind = 'INTENT' THEN 'WAITING' WHEN r.epoch > c.run_epoch THEN 'REPEATED'
                                ELSE 'NOT_REPEATED' END),
       c.parent_id, c.scheduled_for, c.ordinal
FROM reconciliation c
LEFT JOIN runs r ON r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id AND r.scheduled_for = c.scheduled_for
                AND r.ordinal = c.ordinal
WHERE c.tenant_id = %(tenant)s AND (c.at, c.entry) > (%(after_at)s, %(after_entry)s)
ORDER BY c.at, c.entry
LIMIT %(limit)s;

-- name: cell_unread_settle
-- Sites all of whose STRICT decisions were judged, for each tenant (tenant_id) that can be written for: STRICT waits for
-- them no more.
UPDATE unread_sites u SET settled_at = clock_timestamp()
WHERE u.settled_at IS NULL AND u.read_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM reconciliation c JOIN tenants t USING (tenant_id)
                  WHERE c.outcome IS NULL AND c.kind = 'INTENT' AND c.policy = 'STRICT'
                    AND c.region IN (u.region, u.lost) AND t.state NOT IN ('SUSPENDED', 'MOVED'))
RETURNING u.region;

-- name: cell_returns
-- What regions handed in to this cell, the latest first.
SELECT region, epoch, began_at, read_at, transactions, entries, dropped FROM returns ORDER BY began_at DESC, region;

-- name: cell_returned_counts
-- How entries stand, by tenant_id, region and outcome.
SELECT c.tenant_id, c.region, c.kind, coalesce(c.outcome, CASE WHEN c.kind = 'INTENT' THEN 'WAITING'
           WHEN r.epoch > c.run_epoch THEN 'REPEATED' ELSE 'NOT_REPEATED' END) AS became, count(*)
FROM reconciliation c
LEFT JOIN runs r ON r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id AND r.scheduled_for = c.scheduled_for
                AND r.ordinal = c.ordinal
GROUP BY 1, 2, 3, 4
ORDER BY 1, 2, 3, 4;

-- name: returned_untold
-- Tenants (tenant_id) all of whose entries were judged, and who were not told yet.
SELECT c.tenant_id, c.region, c.epoch, t.ownership_epoch
FROM returned_tenants c JOIN tenants t ON t.tenant_id = c.tenant_id AND t.state = 'ACTIVE'
LEFT JOIN returns r ON r.region = c.region AND r.epoch = c.epoch
WHERE c.told_at IS NULL AND (r.region IS NULL OR r.read_at IS NOT NULL)
  AND NOT EXISTS (SELECT FROM reconciliation e WHERE e.tenant_id = c.tenant_id AND e.outcome IS NULL AND e.kind = 'INTENT')
LIMIT 100;

-- name: returned_tell
-- A tenant (tenant_id) is told of a return, once; how many entries of which kind there are.
WITH told AS (
    UPDATE returned_tenants SET told_at = clock_timestamp()
    WHERE tenant_id = %(tenant)s AND region = %(region)s AND epoch = %(epoch)s AND told_at IS NULL
    RETURNING tenant_id, region
)
SELECT count(*) FILTER (WHERE e.kind = 'INTENT'), count(*) FILTER (WHERE e.kind <> 'INTENT'),
       count(*) FILTER (WHERE e.outcome IN ('CHANGED_SINCE', 'UNCONFIRMED', 'NOT_APPLIED', 'REFUSED')),
       EXISTS (SELECT FROM told)
FROM reconciliation e WHERE e.tenant_id = %(tenant)s AND e.region = %(region)s;

-- name: purge_reconciliation
-- Old entries of each tenant (tenant_id): their runs are gone by then.
WITH old AS (
    SELECT s.ctid FROM tenants t CROSS JOIN LATERAL (
        SELECT c.ctid FROM reconciliation c
        WHERE c.tenant_id = t.tenant_id AND c.at < now() - %(kept)s::interval
        ORDER BY c.at LIMIT %(page)s) AS s
    LIMIT %(page)s
)
DELETE FROM reconciliation WHERE ctid = ANY(ARRAY(SELECT ctid FROM old));

-- name: cell_returned_away
-- Returns that concern tenants (tenant_id) who live in another cell by now, which was not told yet; all of it was judged.
SELECT c.tenant_id, c.region, c.epoch, s.move_id, s.peer_url
FROM returned_tenants c JOIN tenants t ON t.tenant_id = c.tenant_id AND t.state = 'MOVED'
JOIN transfers s ON s.tenant_id = t.tenant_id AND s.move_id = t.move_id AND s.side = 'SOURCE' AND s.peer_url <> ''
LEFT JOIN returns r ON r.region = c.region AND r.epoch = c.epoch
WHERE c.told_at IS NULL AND (r.region IS NULL OR r.read_at IS NOT NULL)
  AND NOT EXISTS (SELECT FROM reconciliation e WHERE e.tenant_id = c.tenant_id AND e.outcome IS NULL AND e.kind = 'INTENT')
LIMIT 10;

-- name: returned_away_page
-- What is reported of a return to a tenant (tenant_id), in order; without the rows that it was judged by.
SELECT c.entry, to_jsonb(c) || jsonb_build_object('detail', convert_to(jsonb_strip_nulls(
           jsonb_build_object('run', convert_from(c.detail, 'UTF8')::jsonb -> 'run'))::text, 'UTF8'))
FROM reconciliation c
WHERE c.tenant_id = %(tenant)s AND c.region = %(region)s AND c.entry > %(after)s
ORDER BY c.entry LIMIT %(limit)s;

-- name: returned_handed_on
-- The cell where the tenant (tenant_id) lives reports it now.
UPDATE returned_tenants SET told_at = clock_timestamp()
WHERE tenant_id = %(tenant)s AND region = %(region)s AND epoch = %(epoch)s;

-- name: returned_epoch_of
-- The epoch that a tenant (tenant_id) acts under here.
SELECT ownership_epoch FROM tenants WHERE tenant_id = %(tenant)s AND state = 'ACTIVE';

-- name: returned_take_over
-- What another cell reports of a return to a tenant (tenant_id) that has come from there.
INSERT INTO reconciliation (tenant_id, region, epoch, host_id, seq, position, at, kind, verb, thing, policy, run_key,
                            parent_id, scheduled_for, ordinal, run_epoch, state, detail, outcome, note, settled_at)
SELECT r.tenant_id, r.region, r.epoch, r.host_id, r.seq, r.position, r.at, r.kind, r.verb, r.thing, r.policy, r.run_key,
       r.parent_id, r.scheduled_for, r.ordinal, r.run_epoch, r.state, r.detail, r.outcome, r.note, r.settled_at
FROM jsonb_populate_recordset(NULL::reconciliation, %(rows)s::jsonb) r
WHERE r.tenant_id = %(tenant)s AND (r.kind <> 'INTENT' OR r.outcome IS NOT NULL)
ORDER BY r.entry
ON CONFLICT DO NOTHING;

-- name: returned_concerns
-- A tenant (tenant_id) is to be told of a return.
INSERT INTO returned_tenants (tenant_id, region, epoch) VALUES (%(tenant)s, %(region)s, %(epoch)s) ON CONFLICT DO NOTHING;
