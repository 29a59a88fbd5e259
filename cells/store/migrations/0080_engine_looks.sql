-- outside a transaction
-- Built while the cell works: nobody waits for it. What an interrupted attempt left is dropped first; what takes another
-- one's place is built beside it.
DROP INDEX CONCURRENTLY IF EXISTS workflow_inbox_at;

-- What waits for workflows is looked for from a time on, as what is due is: a range that is narrow, whatever has died
-- before it.
CREATE INDEX CONCURRENTLY workflow_inbox_at ON workflow_inbox (at);

DROP INDEX CONCURRENTLY IF EXISTS workflow_inbox_first;

-- Timers of a tenant are counted by an index that looks for what is due cannot use: with the statistics of a moment in
-- which few waited, a plan that is kept read all that waits by it, and sorted that.
DROP INDEX CONCURRENTLY IF EXISTS workflows_timers;

CREATE INDEX CONCURRENTLY workflows_timers ON workflows (tenant_id) WHERE (timer_at IS NOT NULL) IS TRUE;

DROP INDEX CONCURRENTLY IF EXISTS workflows_pending;

ALTER INDEX workflows_timers RENAME TO workflows_pending;

-- The same of executions by their id and by their start: where nobody has looked at a table yet, every index that begins
-- with the tenant looks alike, and an execution was looked for among all of its tenant's. Now those alone use them that
-- say their condition, which always holds.
DROP INDEX CONCURRENTLY IF EXISTS workflows_started;

CREATE INDEX CONCURRENTLY workflows_started ON workflows (tenant_id, started_at, run_id) WHERE started_at > '-infinity';

DROP INDEX CONCURRENTLY IF EXISTS workflows_by_start;

ALTER INDEX workflows_started RENAME TO workflows_by_start;

DROP INDEX CONCURRENTLY IF EXISTS workflows_named;

CREATE INDEX CONCURRENTLY workflows_named ON workflows (tenant_id, workflow_id, started_at) WHERE workflow_id <> '';

DROP INDEX CONCURRENTLY IF EXISTS workflows_by_id;

ALTER INDEX workflows_named RENAME TO workflows_by_id;
