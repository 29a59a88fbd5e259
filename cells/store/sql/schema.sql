-- name: migrations_lock
-- One migrator at a time: whether it is this session, until it unlocks or ends.
SELECT pg_try_advisory_lock(hashtext('clockhouse.migrate'));

-- name: migrations_unlock
-- The next migrator may go on.
SELECT pg_advisory_unlock(hashtext('clockhouse.migrate'));

-- name: migrations_table
-- What has been applied, with the checksum of the file as it was.
CREATE TABLE IF NOT EXISTS schema_migrations (
    name       text PRIMARY KEY,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- name: migrations_applied
-- Names and checksums.
SELECT name, checksum FROM schema_migrations ORDER BY name;

-- name: migrations_record
-- Remembers one applied file.
INSERT INTO schema_migrations (name, checksum) VALUES (%(name)s, %(checksum)s);

-- name: migrations_patience
-- A file that does not get a table's lock at once steps back: behind it everybody would queue.
SET LOCAL lock_timeout = '1s';

-- name: cell_insert
-- The cell's own row; its name and the store's number are given once and for all, and whether it is owned under a
-- lease, which begins ended.
INSERT INTO cell (name, store, lease_until) VALUES (%(name)s, %(store)s, CASE WHEN %(leased)s THEN '-infinity'::timestamptz END)
ON CONFLICT (singleton) DO NOTHING;

-- name: cell_name
-- The name under which this database was set up, whether its cell is owned under a lease, and the store's number.
SELECT name, lease_until IS NOT NULL, store FROM cell;

-- name: cell_standby
-- Whether this database follows another one.
SELECT pg_is_in_recovery();

-- name: partitions_lock
-- One creator of partitions at a time.
SELECT pg_advisory_xact_lock(hashtext('clockhouse.partitions'));

-- name: partitions_patience
-- Attaching waits for writers of the default partition; behind it everybody would queue.
SET LOCAL lock_timeout = '2s';

-- name: partitions_ensure
-- Day partitions of runs and journal from yesterday on; how many were new.
SELECT count(*) FILTER (WHERE ensure_day_partition(
           'runs', d::date, 'fillfactor=80, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_cost_delay=0'))
     + count(*) FILTER (WHERE ensure_day_partition('journal', d::date, 'autovacuum_enabled=true'))
FROM generate_series((now() AT TIME ZONE 'UTC')::date - 1, (now() AT TIME ZONE 'UTC')::date + %(days_ahead)s::int, interval '1 day') AS d;
