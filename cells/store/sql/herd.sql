-- name: herd_timers
-- How many jobs of a tenant are due in each minute of a range; what is overdue counts in its first.
SELECT date_trunc('minute', greatest(due_at, %(since)s::timestamptz), 'UTC'), count(*)::int
FROM (SELECT due_at FROM jobs
      WHERE tenant_id = %(tenant)s AND due_at IS NOT NULL AND due_at < %(until)s
        AND (%(target)s::text IS NULL OR target_id = %(target)s)
        AND (%(priority)s::smallint IS NULL OR priority = %(priority)s)
      ORDER BY due_at LIMIT %(most)s) AS waiting
GROUP BY 1;

-- name: herd_recurring
-- The recurring ones among the soonest jobs of a tenant, those alike together: schedule, occurrence
-- they wait for, offset in whole seconds.
SELECT schedule, next_run_at, offset_s, count(*)::int
FROM (SELECT (convert_from(v.definition, 'UTF8')::jsonb -> 'schedule')::text AS schedule, j.next_run_at,
             j.offset_ms / 1000 AS offset_s
      FROM (SELECT job_id, version, next_run_at, offset_ms FROM jobs
            WHERE tenant_id = %(tenant)s AND due_at IS NOT NULL AND due_at < %(until)s
              AND (%(target)s::text IS NULL OR target_id = %(target)s)
              AND (%(priority)s::smallint IS NULL OR priority = %(priority)s)
            ORDER BY due_at LIMIT %(most)s) AS j
      JOIN job_versions v ON v.tenant_id = %(tenant)s AND v.job_id = j.job_id AND v.version = j.version) AS s
WHERE schedule::jsonb ->> 'type' IN ('CRON', 'RATE')
GROUP BY 1, 2, 3;
