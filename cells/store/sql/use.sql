-- name: use_running
-- Runs of a tenant that are under way on living hosts, counted to a little beyond a bound.
SELECT count(*)::bigint
FROM (
    SELECT FROM hosts h JOIN runs r ON r.host_id = h.host_id
    WHERE h.state = 'LIVE' AND r.lease_expires_at IS NOT NULL AND r.state = 'RUNNING'
      AND r.tenant_id = %(tenant)s
    LIMIT %(limit)s
) AS held;

-- name: use_strict
-- The most strict jobs of a tenant that are due in one second of a range.
SELECT coalesce(max(due), 0)::bigint
FROM (
    SELECT count(*) AS due FROM jobs
    WHERE tenant_id = %(tenant)s AND priority = 0 AND window_ms = 0
      AND due_at >= %(since)s AND due_at < %(until)s
    GROUP BY date_trunc('second', due_at)
) AS seconds;
