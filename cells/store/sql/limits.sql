-- name: member_job_targets
-- Whom some jobs call (tenant_id, job), by position in the request.
SELECT w.i::int, j.target_id
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[]) WITH ORDINALITY AS w (tenant_id, job_id, i)
JOIN jobs j ON j.tenant_id = w.tenant_id AND j.job_id = w.job_id;

-- name: member_run_targets
-- Whom some runs call (tenant_id, parent, instant, ordinal), by position in the request.
SELECT w.i::int, r.target_id
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[])
     WITH ORDINALITY AS w (tenant_id, parent_id, scheduled_for, ordinal, i)
JOIN runs r ON r.tenant_id = w.tenant_id AND r.parent_id = w.parent_id
           AND r.scheduled_for = w.scheduled_for AND r.ordinal = w.ordinal;

-- name: drills_add
-- Duplicates delivered to some targets (tenant_id, target) that are still there.
INSERT INTO target_drills AS d (tenant_id, target_id, sent, coped, at, failed_run, failed_at, failed_status, failed_error)
SELECT n.tenant_id, n.target_id, n.sent, n.coped, now(), n.run, CASE WHEN n.run IS NOT NULL THEN now() END, n.status, n.error
FROM unnest(%(tenants)s::uuid[], %(targets)s::text[], %(sent)s::bigint[], %(coped)s::bigint[], %(runs)s::text[],
            %(statuses)s::int[], %(errors)s::text[]) AS n (tenant_id, target_id, sent, coped, run, status, error)
JOIN targets t ON t.tenant_id = n.tenant_id AND t.target_id = n.target_id
ON CONFLICT (tenant_id, target_id) DO UPDATE SET
    sent = d.sent + excluded.sent,
    coped = d.coped + excluded.coped,
    at = excluded.at,
    failed_run = coalesce(excluded.failed_run, d.failed_run),
    failed_at = coalesce(excluded.failed_at, d.failed_at),
    failed_status = CASE WHEN excluded.failed_run IS NULL THEN d.failed_status ELSE excluded.failed_status END,
    failed_error = CASE WHEN excluded.failed_run IS NULL THEN d.failed_error ELSE excluded.failed_error END;

-- name: drill_get
-- What came of the duplicates delivered to a target (tenant_id, target).
SELECT sent, coped, at, failed_run, failed_at, failed_status, failed_error
FROM target_drills WHERE tenant_id = %(tenant)s AND target_id = %(target)s;
