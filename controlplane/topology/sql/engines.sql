-- name: engine_settings
-- What a cell's PostgreSQL must be set to, as it is.
SELECT name, setting FROM pg_settings
WHERE name IN ('server_version_num', 'server_encoding', 'wal_level', 'max_replication_slots', 'max_wal_senders',
               'max_connections', 'track_commit_timestamp', 'fsync', 'full_page_writes', 'data_checksums');

-- name: engine_rights
-- Whether the user may make tables here; and roles, publications and slots, as moves of tenants need them.
SELECT has_database_privilege(current_user, current_database(), 'CREATE')
           AND has_schema_privilege(current_user, 'public', 'CREATE'),
       r.rolsuper OR (r.rolcreaterole AND r.rolreplication
                      AND pg_has_role(current_user, 'pg_create_subscription', 'USAGE'))
FROM pg_roles r WHERE r.rolname = current_user;

-- name: engine_contents
-- How many tables there are, and whether a cell has been set up here.
SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')),
       to_regclass('public.cell') IS NOT NULL AND to_regclass('public.schema_migrations') IS NOT NULL,
       to_regclass('public.live_hosts') IS NOT NULL,
       extract(epoch FROM clock_timestamp())::float8;

-- name: engine_cell
-- The name of the cell that was set up here; no row before its first start.
SELECT name FROM cell;

-- name: engine_hosts
-- Processes of the cell that live: what they run on is migrated.
SELECT count(*) FROM live_hosts;
