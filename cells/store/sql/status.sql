-- name: status_hosts
-- Process starts that are live, or not yet buried.
SELECT h.name, h.roles, h.started_at, l.host_id IS NOT NULL
FROM hosts h LEFT JOIN live_hosts l USING (host_id)
WHERE h.state = 'LIVE' ORDER BY h.host_id;

-- name: status_oldest
-- The earliest timer of all: one look at the head of each shard's two indexes.
SELECT min(least(job.due_at, run.timer_at)), clock_timestamp()
FROM generate_series(0, 255) AS s (shard)
LEFT JOIN LATERAL (SELECT due_at FROM jobs WHERE shard = s.shard AND due_at IS NOT NULL
                   ORDER BY due_at LIMIT 1) AS job ON true
LEFT JOIN LATERAL (SELECT timer_at FROM runs WHERE shard = s.shard AND timer_at IS NOT NULL
                   ORDER BY timer_at LIMIT 1) AS run ON true;

-- name: status_jobs
-- About how many jobs there are, as the planner believes.
SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'jobs'::regclass;
