-- name: job_workflow_begin
-- Runs (tenant_id, parent, instant, ordinal) whose workflows are to start.
INSERT INTO job_workflows (tenant_id, parent_id, scheduled_for, ordinal, epoch, todo)
SELECT tenant_id, parent_id, scheduled_for, ordinal, epoch, 'START'
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(epochs)s::bigint[]) AS c (tenant_id, parent_id, scheduled_for, ordinal, epoch)
ON CONFLICT (tenant_id, parent_id, scheduled_for, ordinal) DO UPDATE
SET epoch = excluded.epoch, todo = 'START', run_id = NULL, status = NULL, error = NULL, result = NULL,
    at = clock_timestamp();

-- name: job_workflow_look
-- Whether any workflow is to start, and whether any has ended: one row for each, of whichever tenant.
(SELECT todo, tenant_id FROM job_workflows WHERE todo = 'START' LIMIT 1)
UNION ALL
(SELECT todo, tenant_id FROM job_workflows WHERE todo = 'END' LIMIT 1);

-- name: job_workflow_starts
-- Runs of active tenants whose workflows are to start, locked with them: who cancels one waits for its start. Tenants
-- take turns: each one's longest waiting, then each one's second. Those that another engine is about to start are passed
-- over, so more are looked at than are taken; where many tenants wait, fewer of each.
WITH RECURSIVE waiting AS (
    (SELECT tenant_id FROM job_workflows WHERE todo = 'START' ORDER BY tenant_id LIMIT 1)
    UNION ALL
    SELECT n.tenant_id FROM waiting w CROSS JOIN LATERAL (
        SELECT o.tenant_id FROM job_workflows o WHERE o.todo = 'START' AND o.tenant_id > w.tenant_id
        ORDER BY o.tenant_id LIMIT 1) AS n),
turns AS MATERIALIZED (
    SELECT f.* FROM waiting w
    JOIN tenants t ON t.tenant_id = w.tenant_id AND t.state = 'ACTIVE'
    CROSS JOIN LATERAL (
        SELECT o.tenant_id, o.parent_id, o.scheduled_for, o.ordinal, o.at, row_number() OVER (ORDER BY o.at) AS turn
        FROM job_workflows o WHERE o.todo = 'START' AND o.tenant_id = w.tenant_id AND o.at <= clock_timestamp()
        ORDER BY o.at LIMIT (SELECT greatest(4 * %(limit)s / count(*), 20) FROM waiting)) AS f
    ORDER BY f.turn, f.at LIMIT 4 * %(limit)s)
SELECT j.tenant_id, j.parent_id, j.scheduled_for, j.ordinal, r.series, r.cancel_requested, v.definition,
       coalesce(r.input, v.payload), t.ownership_epoch, clock_timestamp()
FROM turns n
JOIN job_workflows j ON j.tenant_id = n.tenant_id AND j.parent_id = n.parent_id AND j.scheduled_for = n.scheduled_for
                    AND j.ordinal = n.ordinal AND (j.todo = 'START') IS TRUE
JOIN tenants t ON t.tenant_id = j.tenant_id AND t.state = 'ACTIVE'
JOIN runs r ON r.tenant_id = j.tenant_id AND r.parent_id = j.parent_id AND r.scheduled_for = j.scheduled_for
           AND r.ordinal = j.ordinal AND r.state = 'RUNNING' AND r.epoch = j.epoch
JOIN job_versions v ON v.tenant_id = r.tenant_id AND v.job_id = r.parent_id AND v.version = r.version
ORDER BY n.turn, n.at LIMIT %(limit)s
FOR NO KEY UPDATE OF j, r SKIP LOCKED;

-- name: job_workflow_put_off
-- A run (tenant_id, parent, instant, ordinal) whose workflow could not begin, or that could not be ended, is tried again
-- later, behind others.
UPDATE job_workflows j SET at = clock_timestamp() + interval '1 minute'
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[])
     AS c (tenant_id, parent_id, scheduled_for, ordinal)
WHERE j.tenant_id = c.tenant_id AND j.parent_id = c.parent_id AND j.scheduled_for = c.scheduled_for
  AND j.ordinal = c.ordinal AND j.todo IS NOT NULL;

-- name: job_workflow_used
-- Which workflow ids (tenant_id, workflow_id) had an execution before, by position; those that have left, too.
SELECT c.i::int
FROM unnest(%(tenants)s::uuid[], %(workflows)s::text[]) WITH ORDINALITY AS c (tenant_id, workflow_id, i)
WHERE EXISTS (SELECT FROM workflows f
              WHERE f.tenant_id = c.tenant_id AND f.workflow_id = c.workflow_id AND f.workflow_id <> '')
   OR EXISTS (SELECT FROM workflow_ids_used u WHERE u.tenant_id = c.tenant_id AND u.workflow_id = c.workflow_id);

-- name: job_workflow_begun
-- What became of starts (tenant_id, parent, instant, ordinal).
UPDATE job_workflows j
SET todo = c.todo, run_id = c.run::uuid, workflow_id = c.workflow_id, status = c.status, error = c.error,
    at = clock_timestamp()
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(todos)s::text[], %(runs)s::text[], %(workflows)s::text[], %(statuses)s::text[], %(errors)s::text[])
     AS c (tenant_id, parent_id, scheduled_for, ordinal, todo, run, workflow_id, status, error)
WHERE j.tenant_id = c.tenant_id AND j.parent_id = c.parent_id AND j.scheduled_for = c.scheduled_for
  AND j.ordinal = c.ordinal;

-- name: job_workflow_shown
-- Runs (tenant_id, parent, instant, ordinal) tell which workflow they are.
UPDATE runs r SET progress = c.progress::jsonb, started_at = clock_timestamp()
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(shown)s::text[]) AS c (tenant_id, parent_id, scheduled_for, ordinal, progress)
WHERE r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id AND r.scheduled_for = c.scheduled_for
  AND r.ordinal = c.ordinal;

-- name: job_workflow_closed
-- Workflows that runs wait for (tenant_id, parent, instant, ordinal) are closed. Only those of the chain that the run
-- began: an earlier one may close again, late.
UPDATE job_workflows j
SET todo = 'END', status = c.status, error = c.error, result = c.result, at = clock_timestamp()
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(statuses)s::text[], %(errors)s::text[], %(results)s::bytea[], %(runs)s::uuid[])
     AS c (tenant_id, parent_id, scheduled_for, ordinal, status, error, result, run)
JOIN workflows f ON f.tenant_id = c.tenant_id AND f.run_id = c.run
WHERE coalesce(f.chain, f.run_id) = j.run_id AND j.tenant_id = c.tenant_id AND j.parent_id = c.parent_id AND j.scheduled_for = c.scheduled_for
  AND j.ordinal = c.ordinal AND j.todo IS NULL;

-- name: job_workflow_ends
-- Runs of active tenants whose workflows have ended, with what completing them needs. Tenants take turns.
WITH RECURSIVE waiting AS (
    (SELECT tenant_id FROM job_workflows WHERE todo = 'END' ORDER BY tenant_id LIMIT 1)
    UNION ALL
    SELECT n.tenant_id FROM waiting w CROSS JOIN LATERAL (
        SELECT o.tenant_id FROM job_workflows o WHERE o.todo = 'END' AND o.tenant_id > w.tenant_id
        ORDER BY o.tenant_id LIMIT 1) AS n),
turns AS MATERIALIZED (
    SELECT f.* FROM waiting w
    JOIN tenants t ON t.tenant_id = w.tenant_id AND t.state = 'ACTIVE'
    CROSS JOIN LATERAL (
        SELECT o.tenant_id, o.parent_id, o.scheduled_for, o.ordinal, o.at, row_number() OVER (ORDER BY o.at) AS turn
        FROM job_workflows o WHERE o.todo = 'END' AND o.tenant_id = w.tenant_id AND o.at <= clock_timestamp()
        ORDER BY o.at LIMIT %(limit)s) AS f
    ORDER BY f.turn, f.at LIMIT %(limit)s)
SELECT j.tenant_id, j.parent_id, j.scheduled_for, j.ordinal, j.epoch, j.status, j.error, j.result,
       v.definition, r.series, r.attempt, r.priority, r.shard, r.version, r.claimed_at, r.started_at, r.due_at,
       clock_timestamp()
FROM turns n
JOIN job_workflows j ON j.tenant_id = n.tenant_id AND j.parent_id = n.parent_id AND j.scheduled_for = n.scheduled_for
                    AND j.ordinal = n.ordinal AND (j.todo = 'END') IS TRUE
JOIN runs r ON r.tenant_id = j.tenant_id AND r.parent_id = j.parent_id AND r.scheduled_for = j.scheduled_for
           AND r.ordinal = j.ordinal
JOIN job_versions v ON v.tenant_id = r.tenant_id AND v.job_id = r.parent_id AND v.version = r.version
ORDER BY n.turn, n.at;

-- name: job_workflow_forget
-- Runs (tenant_id, parent, instant, ordinal) that were completed under that epoch. One whose completion was refused,
-- for its tenant is on its way to another cell, is to be completed yet.
DELETE FROM job_workflows j
USING unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
             %(epochs)s::bigint[]) AS c (tenant_id, parent_id, scheduled_for, ordinal, epoch)
WHERE j.tenant_id = c.tenant_id AND j.parent_id = c.parent_id AND j.scheduled_for = c.scheduled_for
  AND j.ordinal = c.ordinal AND j.epoch = c.epoch AND j.todo = 'END'
  AND NOT EXISTS (SELECT FROM runs r
                  WHERE r.tenant_id = j.tenant_id AND r.parent_id = j.parent_id AND r.scheduled_for = j.scheduled_for
                    AND r.ordinal = j.ordinal AND r.epoch = j.epoch AND r.state = 'RUNNING');
