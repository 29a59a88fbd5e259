-- outside a transaction
-- What ended long ago is found by its age. Built while the cell works: nobody waits for it.
DROP INDEX CONCURRENTLY IF EXISTS jobs_ended;

CREATE INDEX CONCURRENTLY jobs_ended ON jobs (updated_at) WHERE due_at IS NULL AND state IN ('CANCELLED', 'DONE');

DROP INDEX CONCURRENTLY IF EXISTS dlq_age;

CREATE INDEX CONCURRENTLY dlq_age ON dlq (failed_at);

DROP INDEX CONCURRENTLY IF EXISTS job_versions_age;

CREATE INDEX CONCURRENTLY job_versions_age ON job_versions (created_at) WHERE version > 1;
