-- outside a transaction
-- What is STRICT: little, so that the others cost these indexes nothing. With them "has this tenant anything that is?"
-- is one probe. Built while others write: nobody waits for it. What an interrupted attempt left is dropped first.
DROP INDEX CONCURRENTLY IF EXISTS jobs_strict;

CREATE INDEX CONCURRENTLY jobs_strict ON jobs (tenant_id, job_id) WHERE region_policy = 'STRICT';

DROP INDEX CONCURRENTLY IF EXISTS workflows_strict;

CREATE INDEX CONCURRENTLY workflows_strict ON workflows (tenant_id, run_id) WHERE region_policy = 'STRICT';
