-- name: return_jobs
-- Jobs of tenants (tenant_id, job) as they are here.
SELECT j.tenant_id, j.job_id, to_jsonb(j)
FROM unnest(%(tenants)s::uuid[], %(things)s::uuid[]) AS n (tenant_id, job_id) JOIN jobs j USING (tenant_id, job_id);

-- name: return_versions
-- All versions of jobs (tenant_id, job), in order.
SELECT v.tenant_id, v.job_id, to_jsonb(v)
FROM unnest(%(tenants)s::uuid[], %(things)s::uuid[]) AS n (tenant_id, job_id)
JOIN job_versions v USING (tenant_id, job_id)
ORDER BY v.tenant_id, v.job_id, v.version;

-- name: return_facets
-- Search terms of jobs (tenant_id, job).
SELECT f.tenant_id, f.job_id, to_jsonb(f)
FROM unnest(%(tenants)s::uuid[], %(things)s::uuid[]) AS n (tenant_id, job_id) JOIN job_facets f USING (tenant_id, job_id);

-- name: return_runs_of
-- All runs of jobs (tenant_id, job).
SELECT r.tenant_id, r.parent_id, to_jsonb(r)
FROM unnest(%(tenants)s::uuid[], %(things)s::uuid[]) AS n (tenant_id, parent_id)
JOIN runs r USING (tenant_id, parent_id)
ORDER BY r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal;

-- name: return_letters
-- All dead letters of jobs (tenant_id, job).
SELECT d.tenant_id, d.parent_id, to_jsonb(d)
FROM unnest(%(tenants)s::uuid[], %(things)s::uuid[]) AS n (tenant_id, parent_id) JOIN dlq d USING (tenant_id, parent_id);

-- name: return_runs
-- Runs (tenant_id, parent, instant, ordinal) as they are here, and the key of a workflow's step.
SELECT r.tenant_id, r.parent_id, extract(epoch FROM r.scheduled_for)::bigint, r.ordinal,
       to_jsonb(r) - '{spec,input,tenant_id,parent_id,shard,progress}'::text[],
       CASE WHEN r.spec IS NOT NULL THEN convert_from(r.spec, 'UTF8')::jsonb #>> '{activity,key}' END, to_jsonb(r)
FROM unnest(%(tenants)s::uuid[], %(things)s::uuid[], %(instants)s::bigint[], %(ordinals)s::int[])
     AS n (tenant_id, parent_id, at, ordinal)
JOIN runs r ON r.tenant_id = n.tenant_id AND r.parent_id = n.parent_id
           AND r.scheduled_for = to_timestamp(n.at) AND r.ordinal = n.ordinal;

-- name: return_targets
-- Targets (tenant_id, id) as they are here, with their sealed secrets.
SELECT t.tenant_id, t.target_id, to_jsonb(t),
       coalesce((SELECT jsonb_agg(to_jsonb(s) ORDER BY s.purpose, s.generation) FROM target_secrets s
                 WHERE s.tenant_id = t.tenant_id AND s.target_id = t.target_id), '[]')
FROM unnest(%(tenants)s::uuid[], %(things)s::text[]) AS n (tenant_id, target_id) JOIN targets t USING (tenant_id, target_id);

-- name: return_workflows
-- The latest execution of workflow ids (tenant_id, workflow).
SELECT DISTINCT ON (w.tenant_id, w.workflow_id) w.tenant_id, w.workflow_id, to_jsonb(w)
FROM unnest(%(tenants)s::uuid[], %(things)s::text[]) AS n (tenant_id, workflow_id)
JOIN workflows w USING (tenant_id, workflow_id)
ORDER BY w.tenant_id, w.workflow_id, w.started_at DESC;

-- name: return_histories
-- Whole histories of executions (tenant_id, run).
SELECT e.tenant_id, e.run_id, to_jsonb(e)
FROM unnest(%(tenants)s::uuid[], %(things)s::uuid[]) AS n (tenant_id, run_id) JOIN workflow_events e USING (tenant_id, run_id)
ORDER BY e.tenant_id, e.run_id, e.seq;

-- name: return_inboxes
-- What waits to be recorded for executions (tenant_id, run).
SELECT i.tenant_id, i.run_id, to_jsonb(i)
FROM unnest(%(tenants)s::uuid[], %(things)s::uuid[]) AS n (tenant_id, run_id) JOIN workflow_inbox i USING (tenant_id, run_id)
ORDER BY i.tenant_id, i.run_id, i.position;

-- name: return_signals_of
-- Which signals executions (tenant_id, run) took.
SELECT s.tenant_id, s.run_id, to_jsonb(s)
FROM unnest(%(tenants)s::uuid[], %(things)s::uuid[]) AS n (tenant_id, run_id) JOIN workflow_signals s USING (tenant_id, run_id);

-- name: return_signals
-- Signals that executions (tenant_id, workflow) took: waiting or recorded, in the order in which they came.
SELECT s.tenant_id, s.workflow_id, jsonb_build_object('signal_id', s.signal_id, 'name', s.name, 'at', s.at),
       coalesce((SELECT i.data FROM workflow_inbox i
                 WHERE i.tenant_id = s.tenant_id AND i.run_id = s.run_id AND i.kind = 'SIGNAL'
                   AND convert_from(i.data, 'UTF8')::jsonb ->> 'signal_id' = s.signal_id LIMIT 1),
                (SELECT e.data FROM workflow_events e
                 WHERE e.tenant_id = s.tenant_id AND e.run_id = s.run_id AND e.type = 'SIGNAL_RECEIVED'
                   AND convert_from(e.data, 'UTF8')::jsonb ->> 'signal_id' = s.signal_id LIMIT 1))
FROM unnest(%(tenants)s::uuid[], %(things)s::text[]) AS n (tenant_id, workflow_id)
JOIN workflow_signals s USING (tenant_id, workflow_id)
WHERE s.at >= %(since)s
ORDER BY s.tenant_id, s.workflow_id, s.at;

-- name: return_definitions
-- Definitions of workflows (tenant_id, name), all versions.
SELECT d.tenant_id, d.name, to_jsonb(d)
FROM unnest(%(tenants)s::uuid[], %(things)s::text[]) AS n (tenant_id, name) JOIN workflow_definitions d USING (tenant_id, name)
ORDER BY d.tenant_id, d.name, d.version;

-- name: return_lease
-- Whether this database's owner may be written for: it holds the cell under this epoch until the end of the transaction.
SELECT epoch FROM cell WHERE epoch = %(epoch)s AND lease_until > clock_timestamp() FOR SHARE;

-- name: return_tenants
-- Which of some tenants (tenant_id) this database knows, and whether a move lets nothing be written for them just now.
SELECT tenant_id, state = 'SEALED' FROM tenants WHERE tenant_id = ANY(%(tenants)s::uuid[]);

-- name: return_erased
-- Whether this database has erased the tenant (tenant_id), or is at it: nothing brings it back.
SELECT EXISTS (SELECT FROM erased_tenants WHERE tenant_id = %(tenant)s::uuid);

-- name: return_begin
-- A region begins to hand in what it has to this owner.
INSERT INTO returns (region, epoch) VALUES (%(region)s, %(epoch)s) ON CONFLICT DO NOTHING;

-- name: return_read
-- Whether all that a region has was handed in to this owner already.
SELECT transactions, entries, dropped FROM returns
WHERE region = %(region)s AND epoch = %(epoch)s AND read_at IS NOT NULL;

-- name: return_end
-- All that the region has is here.
UPDATE returns SET read_at = clock_timestamp(), transactions = %(transactions)s, entries = %(entries)s, dropped = %(dropped)s
WHERE region = %(region)s AND epoch = %(epoch)s AND read_at IS NULL;

-- name: return_put
-- Entries of tenants (tenant_id), in order; those that were handed in before stay as they are.
INSERT INTO reconciliation (tenant_id, region, epoch, host_id, seq, position, at, kind, verb, thing, policy, run_key,
                            parent_id, scheduled_for, ordinal, run_epoch, state, detail)
SELECT tenant_id, %(region)s, epoch, host_id, seq, position, at, kind, verb, thing, policy, run_key, parent_id,
       to_timestamp(instant), ordinal, run_epoch, state, detail
FROM unnest(%(tenants)s::uuid[], %(epochs)s::bigint[], %(hosts)s::bigint[], %(seqs)s::bigint[], %(positions)s::int[],
            %(ats)s::timestamptz[], %(kinds)s::text[], %(verbs)s::text[], %(things)s::text[], %(policies)s::text[],
            %(keys)s::text[], %(parents)s::uuid[], %(instants)s::bigint[], %(ordinals)s::int[], %(run_epochs)s::bigint[],
            %(states)s::text[], %(details)s::bytea[]) WITH ORDINALITY
     AS n (tenant_id, epoch, host_id, seq, position, at, kind, verb, thing, policy, run_key, parent_id, instant, ordinal,
           run_epoch, state, detail, i)
ORDER BY i
ON CONFLICT DO NOTHING;

-- name: return_concerns
-- Tenants (tenant_id) that have something among what is handed in.
INSERT INTO returned_tenants (tenant_id, region, epoch)
SELECT DISTINCT tenant_id, %(region)s, %(epoch)s FROM unnest(%(tenants)s::uuid[]) AS n (tenant_id)
ON CONFLICT DO NOTHING;

-- name: return_calendars
-- Calendars (tenant_id, id) as they are here, with all their versions.
SELECT c.tenant_id, c.calendar_id, jsonb_build_object(
    'calendar', to_jsonb(c),
    'versions', (SELECT jsonb_agg(to_jsonb(v) ORDER BY v.version) FROM calendar_versions v
                 WHERE v.tenant_id = c.tenant_id AND v.calendar_id = c.calendar_id))
FROM unnest(%(tenants)s::uuid[], %(things)s::text[]) AS n (tenant_id, calendar_id) JOIN calendars c USING (tenant_id, calendar_id);

-- name: return_told
-- What executions (tenant_id, run) were told to do, waiting or recorded, in the order in which it came.
SELECT i.tenant_id, i.run_id, jsonb_build_object('kind', i.kind, 'data', convert_from(i.data, 'UTF8')::jsonb)
FROM unnest(%(tenants)s::uuid[], %(things)s::uuid[]) AS n (tenant_id, run_id) JOIN workflow_inbox i USING (tenant_id, run_id)
WHERE i.kind IN ('CANCEL', 'TERMINATE')
ORDER BY i.position;

-- name: return_strict_executions
-- Those of some executions (tenant_id, run) that are STRICT, as they are here.
SELECT w.tenant_id, w.run_id, to_jsonb(w)
FROM unnest(%(tenants)s::uuid[], %(things)s::uuid[]) AS n (tenant_id, run_id)
JOIN workflows w USING (tenant_id, run_id) WHERE w.region_policy = 'STRICT';
