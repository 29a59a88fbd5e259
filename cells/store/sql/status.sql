-- name: status_hosts
-- Process starts that are live, or not yet buried.
SELECT h.name, h.roles, h.started_at, l.host_id IS NOT NULL
FROM hosts h LEFT JOIN live_hosts l USING (host_id)
WHERE h.state = 'LIVE' ORDER BY h.host_id;

-- name: status_oldest
-- The earliest timer of all that is due since a time: one look at each shard's two indexes, from there on.
SELECT min(least(job.due_at, run.timer_at)), clock_timestamp()
FROM generate_series(0, 255) AS s (shard)
LEFT JOIN LATERAL (SELECT due_at FROM jobs WHERE shard = s.shard AND due_at IS NOT NULL AND due_at >= %(since)s
                   ORDER BY due_at LIMIT 1) AS job ON true
LEFT JOIN LATERAL (SELECT timer_at FROM runs WHERE shard = s.shard AND timer_at IS NOT NULL AND timer_at >= %(since)s
                   ORDER BY timer_at LIMIT 1) AS run ON true;

-- name: status_jobs
-- About how many jobs there are, as the planner believes.
SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'jobs'::regclass;

-- name: status_vitals
-- What hurts a cell before anybody notices: the age of the oldest open snapshot or transaction (seconds), shards
-- nobody releases, open dead letters of any tenant (counted to 100,000), dead rows in jobs and runs.
SELECT greatest(
           (SELECT max(extract(epoch FROM clock_timestamp() - xact_start)) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
              AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)),
           (SELECT max(extract(epoch FROM clock_timestamp() - prepared)) FROM pg_prepared_xacts
            WHERE database = current_database()), 0)::float8,
       (SELECT count(*) FROM shard_leases s LEFT JOIN live_hosts l ON l.host_id = s.host_id WHERE l.host_id IS NULL),
       (SELECT count(*) FROM (SELECT FROM dlq WHERE state = 'OPEN' LIMIT 100000) AS d),
       (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables WHERE relname = 'jobs'),
       (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables WHERE relname LIKE 'runs\_%%');
