-- name: use_running
-- Runs of a tenant that are under way: on living hosts, and in the hands of workers; counted to a little
-- beyond a bound. Leases that ended ten seconds ago are the reaper's: as in `use_running_all`. The stored end of a
-- worker's lease is at most 30 s behind (`pull_heartbeat`).
SELECT count(*)::bigint
FROM (
    SELECT FROM (
        SELECT r.tenant_id FROM hosts h JOIN runs r ON r.host_id = h.host_id
        WHERE h.state = 'LIVE' AND r.lease_expires_at > clock_timestamp() - interval '10 seconds'
          AND r.tenant_id = %(tenant)s
        UNION ALL
        SELECT r.tenant_id FROM runs r
        WHERE r.host_id IS NULL AND r.lease_expires_at > clock_timestamp() - interval '40 seconds'
          AND lease_end(r.lease_expires_at, r.heartbeat_at, r.lease_ms) > clock_timestamp() - interval '10 seconds'
          AND r.task_queue IS NOT NULL AND r.tenant_id = %(tenant)s
    ) AS under_way
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

-- name: use_running_all
-- Runs under way of every tenant_id that has any or was told that it is at its quota: on living hosts, and in
-- the hands of workers; not those that wait for a workflow, whose steps count. Leases that ended ten seconds
-- ago are the reaper's; beginning behind them, dead entries of the index are not walked.
SELECT coalesce(c.tenant_id, t.tenant_id), coalesce(c.running, 0), t.full_since IS NOT NULL
FROM (
    SELECT held.tenant_id, count(*)::int AS running
    FROM (
        SELECT r.tenant_id FROM hosts h JOIN runs r ON r.host_id = h.host_id
        WHERE h.state = 'LIVE' AND r.lease_expires_at > clock_timestamp() - interval '10 seconds'
        UNION ALL
        SELECT r.tenant_id FROM runs r
        WHERE r.host_id IS NULL AND r.lease_expires_at > clock_timestamp() - interval '40 seconds'
          AND lease_end(r.lease_expires_at, r.heartbeat_at, r.lease_ms) > clock_timestamp() - interval '10 seconds'
          AND r.task_queue IS NOT NULL
    ) AS held
    GROUP BY held.tenant_id
) AS c
FULL JOIN (SELECT tenant_id, full_since FROM tenants) AS t ON t.tenant_id = c.tenant_id
WHERE c.running IS NOT NULL OR t.full_since IS NOT NULL;

-- name: use_full
-- Active tenants (tenant_id) are at their quota of running runs from now on, where that is news.
UPDATE tenants t SET full_since = clock_timestamp()
FROM (SELECT u.tenant_id FROM unnest(%(tenants)s::uuid[]) AS u (tenant_id)
      JOIN tenants o ON o.tenant_id = u.tenant_id AND o.state = 'ACTIVE' AND o.full_since IS NULL
      ORDER BY u.tenant_id FOR NO KEY UPDATE OF o) AS n
WHERE t.tenant_id = n.tenant_id
RETURNING t.tenant_id;

-- name: use_room
-- Tenants (tenant_id) are below their quota of running runs again.
UPDATE tenants t SET full_since = NULL
FROM (SELECT o.tenant_id FROM unnest(%(tenants)s::uuid[]) AS u (tenant_id)
      JOIN tenants o ON o.tenant_id = u.tenant_id AND o.full_since IS NOT NULL
      ORDER BY o.tenant_id FOR NO KEY UPDATE OF o) AS n
WHERE t.tenant_id = n.tenant_id;

-- name: use_delay
-- LOW work of these tenants (tenant_id) waits for their budget from now on, or no longer, where that is news; and
-- whether there is somebody to be told.
UPDATE tenants t SET delayed_since = CASE WHEN n.low_delayed THEN clock_timestamp() END
FROM (SELECT o.tenant_id, o.low_delayed FROM unnest(%(tenants)s::uuid[]) AS u (tenant_id)
      JOIN tenants o ON o.tenant_id = u.tenant_id AND o.low_delayed <> (o.delayed_since IS NOT NULL)
      ORDER BY o.tenant_id FOR NO KEY UPDATE OF o) AS n
WHERE t.tenant_id = n.tenant_id
RETURNING t.tenant_id, t.low_delayed AND t.state = 'ACTIVE';

-- name: use_holdups
-- What holds up a tenant's work (tenant_id): its own pause, its quota of running runs since when, and, what is
-- LOW, its budget.
SELECT paused, full_since, low_delayed FROM tenants WHERE tenant_id = %(tenant)s;
