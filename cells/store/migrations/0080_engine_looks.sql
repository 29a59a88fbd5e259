-- What waits for workflows is looked for from a time on, as what is due is: a range that is narrow, whatever has died
-- before it.
CREATE INDEX workflow_inbox_at ON workflow_inbox (at);
DROP INDEX workflow_inbox_first;

-- Timers of a tenant are counted by an index that looks for what is due cannot use: with the statistics of a moment in
-- which few waited, a plan that is kept read all that waits by it, and sorted that.
DROP INDEX workflows_pending;
CREATE INDEX workflows_pending ON workflows (tenant_id) WHERE (timer_at IS NOT NULL) IS TRUE;

-- The same of executions by their id and by their start: where nobody has looked at a table yet, every index that begins
-- with the tenant looks alike, and an execution was looked for among all of its tenant's. Now those alone use them that
-- say their condition, which always holds.
DROP INDEX workflows_by_start;
CREATE INDEX workflows_by_start ON workflows (tenant_id, started_at, run_id) WHERE started_at > '-infinity';
DROP INDEX workflows_by_id;
CREATE INDEX workflows_by_id ON workflows (tenant_id, workflow_id, started_at) WHERE workflow_id <> '';
