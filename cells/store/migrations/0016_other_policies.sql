-- outside a transaction
-- Waiting jobs that are not HOME_ASYNC: few, so that the others cost this index nothing. With it, timers
-- are counted along indexes alone. Built while jobs are being created: nobody waits for it. What an
-- interrupted attempt left is dropped first.
DROP INDEX CONCURRENTLY IF EXISTS jobs_other_policy;

CREATE INDEX CONCURRENTLY jobs_other_policy ON jobs (tenant_id, region_policy)
WHERE due_at IS NOT NULL AND region_policy <> 'HOME_ASYNC';
