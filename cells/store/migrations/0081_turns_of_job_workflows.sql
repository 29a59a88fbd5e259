-- Tenants take turns in having workflows of their jobs begun and ended.
CREATE INDEX job_workflows_turns ON job_workflows (todo, tenant_id, at) WHERE todo IS NOT NULL;
DROP INDEX job_workflows_todo;
