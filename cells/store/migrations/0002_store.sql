-- What the store's statements lean on: the fence of hosts, jobs with their current definition,
-- day partitions, and the two-step closing of minutes.

-- Hosts that may write now: their own lease and the cell's have not ended by the database's
-- clock. A journal row takes its epoch from here, so that a transaction of a lapsed host fails.
CREATE VIEW live_hosts AS
SELECT h.host_id, h.name, h.roles, c.epoch, c.sealed_until
FROM hosts h CROSS JOIN cell c
WHERE h.state = 'LIVE'
  AND h.lease_expires_at > clock_timestamp()
  AND (c.lease_until IS NULL OR c.lease_until > clock_timestamp());

-- A job with the definition that holds now.
CREATE VIEW job_rows AS
SELECT j.tenant_id, j.job_id, j.shard, j.state, j.version, j.window_ms, j.offset_ms, j.next_run_at,
       j.due_at, j.target_id, j.created_at, j.updated_at, v.definition, v.payload
FROM jobs j JOIN job_versions v USING (tenant_id, job_id, version);

-- Minutes before sealed_until are closed: no journal row is dated into them any more. Minutes
-- before metered_until are counted in meter_minutes.
ALTER TABLE cell ADD COLUMN metered_until timestamptz NOT NULL DEFAULT date_trunc('minute', now());

-- So that timers can be counted per policy from the index alone.
DROP INDEX jobs_tenant_due;
CREATE INDEX jobs_tenant_due ON jobs (tenant_id, due_at, job_id) INCLUDE (region_policy) WHERE due_at IS NOT NULL;

ALTER TABLE runs_default SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- A version is what runs were claimed with; changing one would rewrite history.
CREATE FUNCTION refuse_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is immutable', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER immutable BEFORE UPDATE ON job_versions FOR EACH ROW EXECUTE FUNCTION refuse_update();

-- Creates the partition of one UTC day unless it is there. Attached rather than created in
-- place: attaching does not lock out writers of the other partitions. A day whose rows already
-- lie in the default partition stays there, because a row never changes partition.
CREATE FUNCTION ensure_day_partition(parent text, day date, options text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    child text := format('%s_%s', parent, to_char(day, 'YYYYMMDD'));
    low   timestamptz := day::timestamp AT TIME ZONE 'UTC';
    high  timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
BEGIN
    IF to_regclass(child) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL) WITH (%s)', child, parent, options);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, child, low, high);
    RETURN true;
EXCEPTION WHEN check_violation THEN
    RETURN false;
END $$;
