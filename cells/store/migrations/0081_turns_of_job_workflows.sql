-- outside a transaction
-- Tenants take turns in having workflows of their jobs begun and ended. Built while the cell works.
DROP INDEX CONCURRENTLY IF EXISTS job_workflows_turns;

CREATE INDEX CONCURRENTLY job_workflows_turns ON job_workflows (todo, tenant_id, at) WHERE todo IS NOT NULL;

DROP INDEX CONCURRENTLY IF EXISTS job_workflows_todo;
