-- name: job_usage_lock
-- One at a time counts runs by job.
SELECT pg_try_advisory_xact_lock(hashtext('clockhouse.job_usage'));

-- name: job_usage_state
-- From where to where runs that ended can be counted: sealed minutes, in whole steps.
SELECT s.jobs_until, date_bin(%(step)s, c.metered_until, 'epoch') FROM meter_state s CROSS JOIN cell c;

-- name: job_usage_add
-- Adds runs to their jobs' days (tenant_id, day, job). The policy of a job never changes.
INSERT INTO job_usage AS u (tenant_id, day, job_id, region_policy, runs)
SELECT n.tenant_id, n.day, n.job_id, coalesce(j.region_policy, 'HOME_ASYNC'), n.runs
FROM unnest(%(tenants)s::uuid[], %(days)s::timestamptz[], %(jobs)s::uuid[], %(runs)s::bigint[])
     AS g (tenant_id, at, job_id, runs)
CROSS JOIN LATERAL (SELECT g.tenant_id, (g.at AT TIME ZONE 'UTC')::date AS day, g.job_id, g.runs) AS n
LEFT JOIN jobs j ON j.tenant_id = n.tenant_id AND j.job_id = n.job_id
ON CONFLICT (tenant_id, day, job_id) DO UPDATE SET runs = u.runs + excluded.runs;

-- name: job_usage_done
-- Remembers, in the same transaction, how far runs are counted.
UPDATE meter_state SET jobs_until = %(until)s;

-- name: job_usage_span
-- Since and until when runs are counted by job.
SELECT jobs_since, jobs_until FROM meter_state;

-- name: job_usage_of_day
-- Runs that ended on a day, by tenant_id and region policy.
SELECT t.tenant_id, u.region_policy, u.runs
FROM tenants t CROSS JOIN LATERAL (
    SELECT region_policy, sum(runs)::bigint AS runs FROM job_usage
    WHERE tenant_id = t.tenant_id AND day = %(day)s GROUP BY region_policy) AS u
ORDER BY 1, 2;

-- name: job_usage_by_job
-- A tenant's runs over [since, until) of days, by job, behind one.
SELECT job_id, region_policy, sum(runs)::bigint FROM job_usage
WHERE tenant_id = %(tenant)s AND day >= %(since)s AND day < %(until)s AND job_id > %(after)s
GROUP BY job_id, region_policy ORDER BY job_id LIMIT %(limit)s;

-- name: purge_job_usage
-- Days (any tenant_id's) that no report reaches any more.
DELETE FROM job_usage WHERE ctid = ANY(ARRAY(
    SELECT u.ctid FROM tenants t CROSS JOIN LATERAL (
        SELECT ctid FROM job_usage
        WHERE tenant_id = t.tenant_id AND day < (now() AT TIME ZONE 'UTC' - %(kept)s::interval)::date
        ORDER BY day LIMIT %(page)s) AS u
    LIMIT %(page)s));
