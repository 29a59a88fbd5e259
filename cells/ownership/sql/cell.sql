-- name: probe
-- Shows that this database takes writes: its clock, before the renewal that follows is sent, and the epoch it is under.
UPDATE cell SET probed_at = clock_timestamp() WHERE lease_until IS NOT NULL RETURNING clock_timestamp(), epoch;

-- name: extend
-- What the owner may do, until then and no longer. Never under an epoch that is over.
UPDATE cell SET epoch = %(epoch)s, lease_until = greatest(CASE WHEN epoch = %(epoch)s THEN lease_until END, %(until)s)
WHERE epoch <= %(epoch)s
RETURNING epoch, lease_until;

-- name: close
-- Ends the lease now, for a handover: nothing of the cell's is written from here on.
UPDATE cell SET lease_until = least(lease_until, clock_timestamp()) WHERE epoch = %(epoch)s RETURNING epoch;

-- name: adopt_tenants
-- Tenants whose rows were claimed for this cell (tenant_id) act under their new epochs. A move that holds one goes by
-- its own rules.
UPDATE tenants t SET ownership_epoch = n.epoch, updated_at = now()
FROM unnest(%(tenants)s::uuid[], %(epochs)s::bigint[]) AS n (tenant_id, epoch)
WHERE t.tenant_id = n.tenant_id AND t.ownership_epoch < n.epoch AND t.move_id IS NULL;

-- name: abandon_tenants
-- Whoever is not this cell's by the ownership rows (tenant_id) went elsewhere, which this copy had not heard of yet.
UPDATE tenants SET state = 'MOVED', updated_at = now()
WHERE state <> 'MOVED' AND move_id IS NULL AND NOT (tenant_id = ANY(%(tenants)s::uuid[]))
RETURNING tenant_id;

-- name: fresh_leases
-- Workers of all tenants (tenant_id) could not reach anybody while nobody owned the cell: one whole lease for each task
-- they hold.
UPDATE runs SET lease_expires_at = clock_timestamp() + lease_ms * interval '1 millisecond'
WHERE state = 'RUNNING' AND host_id IS NULL AND lease_ms IS NOT NULL AND lease_expires_at IS NOT NULL;
