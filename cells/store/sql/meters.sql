-- name: seal_lock
-- One sealer at a time.
SELECT pg_try_advisory_xact_lock(hashtext('clockhouse.seal'));

-- name: seal_close
-- Closes every minute that is over: from here on no journal row is dated into it.
UPDATE cell SET sealed_until = date_trunc('minute', clock_timestamp(), 'UTC')
WHERE sealed_until < date_trunc('minute', clock_timestamp(), 'UTC');

-- name: seal_now
-- The database's time, read after the closing was committed.
SELECT clock_timestamp();

-- name: seal_state
-- The closed minutes that are not counted yet (from, until).
SELECT metered_until, sealed_until FROM cell;

-- name: seal_blocked
-- Whether a transaction is open that began before the closing was seen committed: it may have
-- looked before the minutes were closed.
SELECT EXISTS (SELECT FROM pg_stat_activity
               WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
                 AND xact_start < %(closed_at)s);

-- name: seal_standbys_counted
-- In how many other regions the cell's rows are written, too: each of its other sites has a slot, whether it streams just
-- now or gets it all later. A cell that is not owned under a lease has no other site, whatever else copies it.
UPDATE cell SET standbys = s.n
FROM (SELECT count(*)::smallint AS n FROM pg_replication_slots
      WHERE slot_type = 'physical' AND starts_with(slot_name, 'site_')
        AND (SELECT lease_until FROM cell) IS NOT NULL) AS s
WHERE cell.standbys <> s.n;

-- name: seal_standbys
-- How many standbys the cell's rows are written to.
SELECT standbys FROM cell;

-- name: seal_bodies
-- A page of what was journalled before some instant, from a position on.
SELECT j.at, j.host_id, j.seq, j.epoch, h.name, j.body FROM journal j JOIN hosts h ON h.host_id = j.host_id
WHERE j.at >= %(at)s AND j.at < %(until)s
  AND (j.at, j.host_id, j.seq) > (%(at)s, %(host)s::bigint, %(seq)s::bigint)
ORDER BY j.at, j.host_id, j.seq
LIMIT %(page)s;

-- name: seal_insert
-- Meters of sealed minutes (tenant_id, host, minute, metric); never changed afterwards.
INSERT INTO meter_minutes (tenant_id, store, epoch, host, minute, metric, region_policy, quantity)
SELECT tenant_id, (SELECT store FROM cell), epoch, host, minute, metric, region_policy, quantity
FROM unnest(%(tenants)s::uuid[], %(epochs)s::bigint[], %(hosts)s::text[], %(minutes)s::timestamptz[], %(metrics)s::text[],
            %(policies)s::text[], %(quantities)s::bigint[])
     AS m (tenant_id, epoch, host, minute, metric, region_policy, quantity);

-- name: seal_done
-- Remembers, in the same transaction, which minutes are counted.
UPDATE cell SET metered_until = %(until)s;

-- name: meters_unshipped
-- Sealed meters that nobody has acknowledged, oldest minute first (tenant_id, host, minute, metric).
SELECT tenant_id, store, epoch, host, minute, metric, region_policy, quantity FROM meter_minutes
WHERE shipped_at IS NULL AND refused IS NULL
ORDER BY minute LIMIT %(limit)s;

-- name: meters_shipped
-- Marks meters (tenant_id, host, minute, metric) as acknowledged, or refused with a reason.
UPDATE meter_minutes m
SET shipped_at = CASE WHEN %(refused)s::text IS NULL THEN now() END, refused = %(refused)s
FROM unnest(%(tenants)s::uuid[], %(stores)s::smallint[], %(epochs)s::bigint[], %(hosts)s::text[], %(minutes)s::timestamptz[],
            %(metrics)s::text[], %(policies)s::text[]) AS s (tenant_id, store, epoch, host, minute, metric, region_policy)
WHERE m.tenant_id = s.tenant_id AND m.store = s.store AND m.epoch = s.epoch AND m.host = s.host AND m.minute = s.minute
  AND m.metric = s.metric AND m.region_policy = s.region_policy;

-- name: meters_sealed_until
-- The store's number, the owner's epoch, and the minute before which every meter (of any tenant_id) is sealed and answered for.
SELECT store, epoch, least(metered_until, (SELECT min(minute) FROM meter_minutes WHERE shipped_at IS NULL AND refused IS NULL))
FROM cell;
