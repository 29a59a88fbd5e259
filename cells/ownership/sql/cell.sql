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
-- Tenants whose rows were claimed for this cell (tenant_id) act under their new epochs, those that a move has not sealed
-- among them: it begins anew. One that is sealed, or comes in, goes by its move's rules.
UPDATE tenants t SET ownership_epoch = n.epoch, updated_at = now()
FROM unnest(%(tenants)s::uuid[], %(epochs)s::bigint[]) AS n (tenant_id, epoch)
WHERE t.tenant_id = n.tenant_id AND t.ownership_epoch < n.epoch
  AND (t.move_id IS NULL OR t.state IN ('ACTIVE', 'SUSPENDED', 'BARRIER'));

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

-- name: note_possible
-- Whether this database has been set up for it: a takeover waits for no migration.
SELECT to_regclass('reconciliation') IS NOT NULL;

-- name: note_under_way
-- What executors of the region that was lost were calling (tenant_id) when the last of its writes came here.
INSERT INTO reconciliation (tenant_id, region, epoch, host_id, seq, position, at, kind, thing, run_key, parent_id,
                            scheduled_for, ordinal, run_epoch, policy, detail)
SELECT r.tenant_id, %(region)s, c.epoch, r.host_id, 0,
       (row_number() OVER (PARTITION BY r.tenant_id, r.host_id ORDER BY r.parent_id, r.scheduled_for, r.ordinal))::int,
       r.claimed_at, 'UNDER_WAY', CASE r.kind WHEN 1 THEN 'workflow-run:' ELSE 'job:' END || replace(r.parent_id::text, '-', ''),
       CASE WHEN r.spec IS NOT NULL THEN convert_from(r.spec, 'UTF8')::jsonb #>> '{activity,key}' END,
       r.parent_id, r.scheduled_for, r.ordinal, r.epoch, j.region_policy,
       convert_to(jsonb_build_object('run', jsonb_build_object('due_at', r.due_at, 'claimed_at', r.claimed_at,
                                                               'started_at', r.started_at))::text, 'UTF8')
FROM cell c CROSS JOIN runs r LEFT JOIN jobs j ON j.tenant_id = r.tenant_id AND j.job_id = r.parent_id
WHERE r.state = 'RUNNING' AND r.host_id IS NOT NULL AND r.lease_expires_at IS NOT NULL
ON CONFLICT DO NOTHING;
