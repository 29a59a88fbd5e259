-- name: once
-- Runs of days in which each is in one file.
SELECT * FROM files;

-- name: latest
-- Runs of days in which one may be in several files: its greatest (series, epoch) is its last state.
SELECT * FROM files
QUALIFY row_number() OVER (PARTITION BY region, cell, date, tenant_id, parent_id, scheduled_for, ordinal
                           ORDER BY series DESC, epoch DESC, finished_at DESC) = 1;

-- name: failed_runs
-- Runs by region, cell, day and state.
SELECT region::VARCHAR AS region, cell::VARCHAR AS cell, date::VARCHAR AS day, state, count(*) AS runs
FROM runs GROUP BY ALL ORDER BY ALL;

-- name: busiest_tenants
-- Runs, attempts and failures by tenant.
SELECT tenant_id, count(*) AS runs, coalesce(sum(attempt), 0)::BIGINT AS attempts,
       count(*) FILTER (state IN ('FAILED', 'UNKNOWN')) AS failed
FROM runs GROUP BY tenant_id ORDER BY tenant_id;

-- name: bytes_per_tenant
-- Runs and the bytes of what is kept of them (attempts with their answers, as text) by tenant.
SELECT tenant_id, count(*) AS runs,
       coalesce(sum(strlen(coalesce(attempts, '')) + strlen(coalesce(reason, ''))), 0)::BIGINT AS bytes
FROM runs GROUP BY tenant_id ORDER BY tenant_id;
