-- name: lake_old_workflows
-- Executions (by tenant_id) that were closed before some time, the oldest first, as far as their histories fit; none
-- whose activities are under way or for which something waits to be recorded.
SELECT tenant_id, run_id, workflow_id, shard, status, definition, version, input_hash, region_policy, next_seq, epoch,
       takeovers, decide_at, timer_at, history_bytes, parent, started_at, closed_at, result, error
FROM (SELECT tenant_id, run_id, workflow_id, shard, status, definition, version, input_hash, region_policy, next_seq, epoch,
             takeovers::text AS takeovers, decide_at, timer_at, history_bytes, parent::text AS parent, started_at, closed_at,
             result, error, sum(history_bytes) OVER (ORDER BY closed_at, run_id) - history_bytes AS before_it
      FROM (SELECT * FROM workflows f
            WHERE closed_at < %(before)s
              AND NOT EXISTS (SELECT FROM workflow_inbox n WHERE n.tenant_id = f.tenant_id AND n.run_id = f.run_id)
              AND NOT EXISTS (SELECT FROM runs r WHERE r.tenant_id = f.tenant_id AND r.parent_id = f.run_id
                              AND r.finished_at IS NULL)
            ORDER BY closed_at, run_id LIMIT %(page)s) AS closed) AS old
WHERE before_it < %(bytes)s
ORDER BY tenant_id, workflow_id, run_id;

-- name: lake_workflow_events
-- Whole histories of executions (tenant_id, run), by position in the request, in their order.
SELECT w.i::int, e.seq, e.epoch, e.type, e.at, e.data
FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[]) WITH ORDINALITY AS w (tenant_id, run_id, i)
JOIN workflow_events e ON e.tenant_id = w.tenant_id AND e.run_id = w.run_id
ORDER BY w.i, e.seq;

-- name: lake_workflow_lock
-- Executions (tenant_id, run) that are about to leave; those somebody else holds stay.
SELECT f.run_id
FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[]) AS c (tenant_id, run_id)
JOIN workflows f ON f.tenant_id = c.tenant_id AND f.run_id = c.run_id
FOR UPDATE OF f SKIP LOCKED;

-- name: lake_workflow_leave
-- Those of them (tenant_id, run) that still are what was written leave with their events, and with the signals of
-- chains that are over; how many. Their ids stay known as used.
WITH gone AS (
    DELETE FROM workflows f
    USING unnest(%(tenants)s::uuid[], %(runs)s::uuid[], %(nexts)s::int[]) AS c (tenant_id, run_id, next_seq)
    WHERE f.tenant_id = c.tenant_id AND f.run_id = c.run_id AND f.next_seq = c.next_seq AND f.closed_at IS NOT NULL
      AND NOT EXISTS (SELECT FROM workflow_inbox n WHERE n.tenant_id = f.tenant_id AND n.run_id = f.run_id)
      AND NOT EXISTS (SELECT FROM runs r WHERE r.tenant_id = f.tenant_id AND r.parent_id = f.run_id
                      AND r.finished_at IS NULL)
    RETURNING f.tenant_id, f.run_id, f.workflow_id, coalesce(f.chain, f.run_id) AS chain, f.input_hash, f.definition,
              f.version, f.status, f.started_at, f.closed_at
),
used AS (
    INSERT INTO workflow_ids_used AS u (tenant_id, workflow_id, run_id, input_hash, definition, version, status,
                                        started_at, closed_at)
    SELECT DISTINCT ON (tenant_id, workflow_id) tenant_id, workflow_id, run_id, input_hash, definition, version, status,
           started_at, closed_at
    FROM gone ORDER BY tenant_id, workflow_id, started_at DESC, run_id DESC
    ON CONFLICT (tenant_id, workflow_id) DO UPDATE
    SET run_id = excluded.run_id, input_hash = excluded.input_hash, definition = excluded.definition,
        version = excluded.version, status = excluded.status, started_at = excluded.started_at,
        closed_at = excluded.closed_at
    WHERE (u.started_at, u.run_id) < (excluded.started_at, excluded.run_id)
),
events AS (
    DELETE FROM workflow_events e USING gone g WHERE e.tenant_id = g.tenant_id AND e.run_id = g.run_id
),
signals AS (
    DELETE FROM workflow_signals s USING gone g
    WHERE s.tenant_id = g.tenant_id AND s.workflow_id = g.workflow_id AND s.run_id = g.chain
      AND NOT EXISTS (SELECT FROM workflows f
                      WHERE f.tenant_id = g.tenant_id AND f.workflow_id = g.workflow_id AND f.workflow_id <> ''
                        AND coalesce(f.chain, f.run_id) = g.chain
                        AND NOT EXISTS (SELECT FROM gone o WHERE o.tenant_id = f.tenant_id AND o.run_id = f.run_id))
)
SELECT count(*)::int, count(DISTINCT tenant_id) FROM gone;

-- name: lake_workflow_file_add
-- A file is part of the lake.
INSERT INTO lake_workflow_files (name, day, rows, bytes, sha256, by_tenant)
VALUES (%(name)s, %(day)s, %(rows)s, %(bytes)s, %(sha256)s, true);

-- name: lake_workflow_tenants_add
-- Whose executions (by tenant_id) a file holds, and when they began.
INSERT INTO lake_workflow_tenants (tenant_id, name, began_from, began_until)
SELECT c.tenant_id, %(name)s, min(c.began), max(c.began)
FROM unnest(%(tenants)s::uuid[], %(begun)s::timestamptz[]) AS c (tenant_id, began)
GROUP BY c.tenant_id;

-- name: lake_workflow_files_of
-- Files that may hold executions of a tenant (tenant_id), and when those began: before the end of the day on which they
-- were closed, where nothing else is known. The latest start first.
SELECT f.day, f.name, f.rows, f.bytes, f.sha256, t.began_until
FROM lake_workflow_tenants t JOIN lake_workflow_files f ON f.name = t.name
WHERE t.tenant_id = %(tenant)s
UNION ALL
SELECT f.day, f.name, f.rows, f.bytes, f.sha256, (f.day + 1)::timestamp AT TIME ZONE 'UTC'
FROM lake_workflow_files f
WHERE NOT f.by_tenant AND EXISTS (SELECT FROM workflow_ids_used u WHERE u.tenant_id = %(tenant)s)
ORDER BY 6 DESC, 2;

-- name: lake_workflow_files
-- Every file of executions, the latest day first.
SELECT day, name, rows, bytes, sha256 FROM lake_workflow_files ORDER BY day DESC, name;

-- name: lake_workflow_ids_expire
-- Workflow ids whose history is no longer kept may be used as if they were new.
DELETE FROM workflow_ids_used WHERE closed_at < %(before)s;

-- name: lake_workflow_expire
-- Files of days before some day are no longer part of the lake; what they were called.
DELETE FROM lake_workflow_files WHERE day < %(before)s RETURNING name;
