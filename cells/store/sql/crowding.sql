-- name: crowding_waits
-- What a tenant's runs waited for (tenant_id), by the minute they began in; the newest scheduled at most. As
-- `time_split` shows it for one run: the last attempt could begin when it was due, or when its retry was. What was
-- asked for behind its time (a backfill, a ONCE in the past) waited for no window.
SELECT date_trunc('minute', claimed_at, 'UTC') AS minute, count(*)::bigint,
       coalesce(sum(greatest(due_at - scheduled_for, '0')) FILTER (WHERE due_at - scheduled_for <= window_most), '0')::interval,
       sum(greatest(ready_at - due_at, '0'))::interval,
       coalesce(sum(greatest(released_at - ready_at, '0')), '0')::interval,
       coalesce(sum(greatest(claimed_at - coalesce(released_at, ready_at), '0')) FILTER (WHERE pulled), '0')::interval,
       coalesce(sum(greatest(claimed_at - coalesce(released_at, ready_at), '0')) FILTER (WHERE NOT pulled), '0')::interval,
       coalesce(sum(greatest(started_at - claimed_at, '0')), '0')::interval
FROM (SELECT scheduled_for, newest.due_at, released_at, claimed_at, started_at, task_queue IS NOT NULL AS pulled,
             (coalesce(j.window_ms, 86400000) + CASE WHEN newest.priority = 3 THEN 21600000 ELSE 0 END)
                 * interval '1 millisecond' AS window_most,
             greatest(newest.due_at, (earlier ->> 'finished_at')::timestamptz
                              + coalesce((earlier ->> 'retry_in_ms')::bigint, 0) * interval '1 millisecond') AS ready_at
      FROM (SELECT r.*, r.attempts -> (CASE WHEN r.state = 'RUNNING' THEN -1 ELSE -2 END) AS earlier
            FROM runs r
            WHERE r.tenant_id = %(tenant)s AND r.scheduled_for >= %(since)s AND r.scheduled_for < %(until)s
              AND r.kind <> 2 AND r.claimed_at IS NOT NULL
              AND r.state IN ('RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED', 'SUCCEEDED_AFTER_CANCEL', 'UNKNOWN')
            ORDER BY r.scheduled_for DESC LIMIT %(most)s) AS newest
      LEFT JOIN jobs j ON j.tenant_id = newest.tenant_id AND j.job_id = newest.parent_id) AS known
GROUP BY 1 ORDER BY 1;

-- name: crowding_began
-- Runs that began in some minutes: those of a tenant (tenant_id), those of all others of the cell, and of how many.
SELECT s.minute, coalesce(sum(s.started) FILTER (WHERE s.tenant_id = %(tenant)s), 0)::bigint,
       coalesce(sum(s.started) FILTER (WHERE s.tenant_id <> %(tenant)s), 0)::bigint,
       count(DISTINCT s.tenant_id) FILTER (WHERE s.tenant_id <> %(tenant)s AND s.started > 0)
FROM tenants t JOIN run_stats s ON s.tenant_id = t.tenant_id AND s.minute = ANY(%(minutes)s::timestamptz[])
GROUP BY s.minute;

-- name: crowding_load
-- What each tenant (tenant_id) began in a range of minutes, the busiest first; its busiest minute, its latest start.
SELECT s.tenant_id, sum(s.started)::bigint, max(s.started)::bigint, max(s.lag_max_ms)::bigint
FROM tenants t JOIN run_stats s ON s.tenant_id = t.tenant_id AND s.minute >= %(since)s AND s.minute < %(until)s
GROUP BY s.tenant_id ORDER BY 2 DESC, 1;

-- name: cell_meters_open
-- Whether something is journalled that no meter counts yet, and sealed meters (of any tenant_id) that nobody has
-- acknowledged, counted to a bound.
SELECT EXISTS (SELECT FROM journal j WHERE j.at >= c.metered_until),
       (SELECT count(*) FROM (SELECT FROM meter_minutes WHERE shipped_at IS NULL AND refused IS NULL LIMIT 10000) AS m)
FROM cell c;
