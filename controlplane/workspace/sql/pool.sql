-- name: create_schema
-- An empty schema; its tables follow in the same transaction.
CREATE SCHEMA {schema};

-- name: drop_schema
-- A schema and all that is in it.
DROP SCHEMA IF EXISTS {schema} CASCADE;

-- name: enter_schema
-- New tables go into the schema until this transaction ends.
SELECT set_config('search_path', %(path)s, true);

-- name: note_migration
-- Django's own bookkeeping inside the schema, so that its stock commands understand it.
INSERT INTO django_migrations (app, name, applied) VALUES ('workspace', %(name)s, now());

-- name: next_number
-- Numbers schemas; gaps do no harm.
SELECT nextval('workspace_schema_number');

-- name: claim
-- One unclaimed schema that stands at the wanted version becomes a tenant's.
UPDATE tenant_schema_version
SET state = 'CLAIMED', tenant_id = %(tenant_id)s, claimed_at = now()
WHERE schema = (
    SELECT schema FROM tenant_schema_version
    WHERE state = 'POOLED' AND version = %(version)s
    ORDER BY created_at
    FOR UPDATE SKIP LOCKED
    LIMIT 1
)
RETURNING schema;

-- name: behind
-- Schemas not at the target version, after the given one.
SELECT schema FROM tenant_schema_version
WHERE version <> %(version)s AND schema > %(after)s
ORDER BY schema
LIMIT %(limit)s;

-- name: lock_schema
-- One migrator at a time per schema; released with the transaction.
SELECT pg_try_advisory_xact_lock(hashtextextended('workspace:' || %(schema)s, 0));

-- name: version_of
-- Read again under the lock: another migrator may have been here.
SELECT version FROM tenant_schema_version WHERE schema = %(schema)s;

-- name: moved_on
-- The schema stands at a newer version.
UPDATE tenant_schema_version SET version = %(version)s, last_error = '' WHERE schema = %(schema)s;

-- name: failed
-- Left at its version, with the reason.
UPDATE tenant_schema_version SET last_error = %(error)s WHERE schema = %(schema)s;

-- name: number_sequence
-- Numbers of workspace schemas.
CREATE SEQUENCE IF NOT EXISTS workspace_schema_number;
