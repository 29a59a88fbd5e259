-- outside a transaction
-- Built while jobs are being created: nobody waits for it. What an interrupted attempt left is
-- dropped first.
DROP INDEX CONCURRENTLY IF EXISTS job_versions_created;

CREATE INDEX CONCURRENTLY job_versions_created ON job_versions (tenant_id, created_at, job_id) WHERE version = 1;
