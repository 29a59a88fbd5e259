-- name: tenants_behind
-- Tenants (tenant_id) that live here and whose instants were computed with other time-zone data, or nobody has said:
-- which, whether it is newer than this, and whether the tenant is sealed: its timers can be moved only once it is known
-- where it lives.
SELECT t.tenant_id, z.version, coalesce(z.version > %(version)s, false), t.state = 'SEALED'
FROM tenants t LEFT JOIN tenant_tzdata z ON z.tenant_id = t.tenant_id
WHERE t.state IN ('ACTIVE', 'SUSPENDED', 'BARRIER', 'SEALED') AND z.version IS DISTINCT FROM %(version)s
ORDER BY t.tenant_id;

-- name: cell_set_tzdata
-- All instants that are stored here (of any tenant_id) were computed with this time-zone data.
UPDATE cell SET tzdata_version = %(version)s
WHERE tzdata_version IS DISTINCT FROM %(version)s AND NOT EXISTS (
    SELECT FROM tenants t LEFT JOIN tenant_tzdata z ON z.tenant_id = t.tenant_id
    WHERE t.state IN ('ACTIVE', 'SUSPENDED', 'BARRIER', 'SEALED') AND z.version IS DISTINCT FROM %(version)s)
RETURNING true;

-- name: retime_open
-- Whether timers of a tenant (tenant_id) may be moved here; a seal waits for whoever saw that.
SELECT true FROM tenants WHERE tenant_id = %(tenant)s AND state IN ('ACTIVE', 'SUSPENDED', 'BARRIER');

-- name: retime_done
-- All instants of a tenant (tenant_id) were computed with this time-zone data; in the transaction of its last page.
INSERT INTO tenant_tzdata AS z (tenant_id, version) VALUES (%(tenant)s, %(version)s)
ON CONFLICT (tenant_id) DO UPDATE SET version = excluded.version WHERE z.version < excluded.version;

-- name: retime_page
-- A page of waiting jobs (of any tenant_id, or up to one) with their definitions, in the order of their keys.
SELECT j.tenant_id, t.ownership_epoch, j.job_id, j.version, j.state, j.priority, j.shard, j.offset_ms, j.next_run_at,
       j.due_at, v.definition
FROM (SELECT * FROM jobs
      WHERE (tenant_id, job_id) > (coalesce(%(after_tenant)s::uuid, '00000000-0000-0000-0000-000000000000'),
                                   coalesce(%(after_job)s::uuid, '00000000-0000-0000-0000-000000000000'))
        AND tenant_id <= coalesce(%(last_tenant)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
      ORDER BY tenant_id, job_id LIMIT %(limit)s) AS j
JOIN tenants t ON t.tenant_id = j.tenant_id
JOIN job_versions v ON v.tenant_id = j.tenant_id AND v.job_id = j.job_id AND v.version = j.version
ORDER BY j.tenant_id, j.job_id;

-- name: retime_jobs
-- Jobs (tenant_id, job) of tenants that live here, also of those that may not run now, wait for another instant
-- where they still wait for the one that is told.
UPDATE jobs j SET next_run_at = m.next_run_at, due_at = CASE WHEN j.due_at IS NOT NULL THEN m.due_at END, delay_ms = 0
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[], %(versions)s::int[], %(olds)s::timestamptz[], %(nexts)s::timestamptz[],
            %(dues)s::timestamptz[]) WITH ORDINALITY AS m (tenant_id, job_id, version, waited_for, next_run_at, due_at, i),
     tenants t
WHERE j.tenant_id = m.tenant_id AND j.job_id = m.job_id AND j.version = m.version AND j.next_run_at = m.waited_for
  AND j.state IN ('ACTIVE', 'PAUSED') AND t.tenant_id = m.tenant_id AND t.state IN ('ACTIVE', 'SUSPENDED', 'BARRIER')
RETURNING m.i::int;

-- name: lengthen_page
-- A page of LOW timers of active tenants (any tenant_id, or one) that are due in a range, the latest first,
-- locked; passes over those that somebody else holds.
SELECT j.tenant_id, j.job_id, j.version, j.shard, j.offset_ms, j.delay_ms, j.next_run_at, j.due_at, v.definition
FROM tenants t
JOIN jobs j ON j.tenant_id = t.tenant_id AND j.due_at >= greatest(%(since)s::timestamptz, clock_timestamp())
           AND j.due_at < %(until)s
JOIN job_versions v ON v.tenant_id = j.tenant_id AND v.job_id = j.job_id AND v.version = j.version
WHERE t.state = 'ACTIVE' AND (%(tenant)s::uuid IS NULL OR t.tenant_id = %(tenant)s) AND j.priority = 3
  AND (j.tenant_id, j.due_at, j.job_id)
      < (coalesce(%(after_tenant)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'),
         coalesce(%(after_due)s::timestamptz, 'infinity'),
         coalesce(%(after_job)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
ORDER BY j.tenant_id DESC, j.due_at DESC, j.job_id DESC LIMIT %(limit)s
FOR NO KEY UPDATE OF j SKIP LOCKED;

-- name: lengthen_jobs
-- Timers (tenant_id, job), locked in this transaction, are due later.
UPDATE jobs j SET due_at = m.due_at, delay_ms = m.delay_ms
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[], %(dues)s::timestamptz[], %(delays)s::int[])
     AS m (tenant_id, job_id, due_at, delay_ms)
WHERE j.tenant_id = m.tenant_id AND j.job_id = m.job_id AND m.due_at > j.due_at;

-- name: cell_lengthen_begin
-- The page of an operation (over each tenant_id) is this transaction's; waits for who does it just now. No row:
-- it was done.
INSERT INTO lengthened_pages (operation, page) VALUES (%(operation)s, %(page)s)
ON CONFLICT DO NOTHING RETURNING true;

-- name: cell_lengthen_done
-- What a page did (over each tenant_id), in the transaction that did it.
UPDATE lengthened_pages
SET jobs = %(jobs)s, tenants = %(tenants)s, after_tenant = %(after_tenant)s, after_due = %(after_due)s,
    after_job = %(after_job)s
WHERE operation = %(operation)s AND page = %(page)s;

-- name: cell_lengthen_was
-- What a page did (over each tenant_id).
SELECT jobs, tenants, after_tenant, after_due, after_job FROM lengthened_pages
WHERE operation = %(operation)s AND page = %(page)s;
