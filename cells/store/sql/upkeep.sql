-- name: purge_idempotency_keys
-- Answers nobody was promised to get again (any tenant's).
DELETE FROM idempotency_keys WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM idempotency_keys WHERE created_at < now() - %(kept)s::interval
    ORDER BY created_at LIMIT %(page)s FOR UPDATE SKIP LOCKED));

-- name: purge_meters
-- Meters (any tenant's) that the control plane acknowledged long ago; refused ones wait for a person.
DELETE FROM meter_minutes WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM meter_minutes WHERE shipped_at < now() - %(kept)s::interval
    ORDER BY shipped_at LIMIT %(page)s FOR UPDATE SKIP LOCKED));

-- name: purge_stats
-- Old minutes of each tenant (tenant_id, minute).
WITH old AS (
    SELECT s.tenant_id, s.minute
    FROM tenants t CROSS JOIN LATERAL (
        SELECT tenant_id, minute FROM run_stats
        WHERE tenant_id = t.tenant_id AND minute < now() - %(kept)s::interval
        ORDER BY minute LIMIT %(page)s) AS s
    LIMIT %(page)s
)
DELETE FROM run_stats s USING old WHERE s.tenant_id = old.tenant_id AND s.minute = old.minute;

-- name: purge_target_stats
-- Old minutes of targets (any tenant_id).
DELETE FROM target_stats WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM target_stats WHERE minute < now() - %(kept)s::interval
    ORDER BY minute LIMIT %(page)s FOR UPDATE SKIP LOCKED));

-- name: purge_secrets
-- Generations of secrets (any tenant's) whose overlap is over: nobody signs with them.
DELETE FROM target_secrets WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM target_secrets WHERE expires_at < now() - %(kept)s::interval
    LIMIT %(page)s FOR UPDATE SKIP LOCKED));

-- name: purge_hosts
-- Process starts long over. Not before all they journalled is metered: meters carry their names.
DELETE FROM hosts WHERE host_id = ANY(ARRAY(
    SELECT host_id FROM hosts
    WHERE state = 'GONE'
      AND lease_expires_at < least(now() - %(kept)s::interval, (SELECT metered_until FROM cell) - interval '1 day')
    ORDER BY host_id LIMIT %(page)s FOR UPDATE SKIP LOCKED));

-- name: purge_selections
-- Selections (any tenant_id) that were not applied in time, and those whose operation ended long ago,
-- with it.
WITH old AS (
    SELECT s.tenant_id, s.selection_id FROM selections s
    WHERE s.expires_at < now()
      AND NOT EXISTS (SELECT FROM operations o WHERE o.tenant_id = s.tenant_id AND o.selection_id = s.selection_id
                      AND (o.finished_at IS NULL OR o.finished_at > now() - %(kept)s::interval))
    ORDER BY s.expires_at LIMIT %(page)s
),
ended AS (
    DELETE FROM operations o USING old
    WHERE o.tenant_id = old.tenant_id AND o.selection_id = old.selection_id
)
DELETE FROM selections s USING old WHERE s.tenant_id = old.tenant_id AND s.selection_id = old.selection_id;

-- name: purge_events
-- Old events (any tenant_id).
DELETE FROM events WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM events WHERE at < now() - %(kept)s::interval
    ORDER BY at LIMIT %(page)s FOR UPDATE SKIP LOCKED));

-- name: purge_lengthenings
-- What operations moved (over each tenant_id) that nobody repeats any more.
DELETE FROM lengthened_pages WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM lengthened_pages WHERE at < now() - %(kept)s::interval
    ORDER BY at LIMIT %(page)s FOR UPDATE SKIP LOCKED));

-- name: purge_patience
-- Dropping a day waits for everybody who reads or writes the journal, and they would wait behind it.
SET LOCAL lock_timeout = '200ms';

-- name: purge_journal_day
-- Drops the oldest day of the journal that is old enough, metered and read by every reader.
SELECT drop_journal_day((now() AT TIME ZONE 'UTC' - %(kept)s::interval)::date);
