-- name: host_register
-- A new process start, leased from now.
INSERT INTO hosts (name, roles, lease_expires_at)
VALUES (%(name)s, %(roles)s, clock_timestamp() + %(lease_ms)s * interval '1 millisecond')
RETURNING host_id, clock_timestamp();

-- name: host_renew
-- Extends a lease that has not ended; a lapsed host never comes back.
UPDATE hosts SET lease_expires_at = clock_timestamp() + %(lease_ms)s * interval '1 millisecond'
WHERE host_id = %(host)s AND state = 'LIVE' AND lease_expires_at > clock_timestamp()
RETURNING name, clock_timestamp();

-- name: host_retire
-- Ends a lease now; what the host still holds is reclaimable at once.
UPDATE hosts SET lease_expires_at = least(lease_expires_at, clock_timestamp())
WHERE host_id = %(host)s AND state = 'LIVE';

-- name: hosts_bury
-- Long lapsed hosts that hold no run any more need not be looked at again. Long: no transaction
-- of theirs can still be open.
UPDATE hosts h SET state = 'GONE'
WHERE h.state = 'LIVE' AND h.lease_expires_at < clock_timestamp() - interval '5 minutes'
  AND NOT EXISTS (SELECT FROM runs r WHERE r.host_id = h.host_id AND r.lease_expires_at IS NOT NULL);

-- name: shards_look
-- Live dispatchers and who holds what: (host, is live dispatcher, shard).
SELECT s.host_id, EXISTS (SELECT FROM live_hosts l WHERE l.host_id = s.host_id AND 'dispatcher' = ANY(l.roles)), s.shard
FROM shard_leases s ORDER BY s.shard;

-- name: shards_dispatchers
-- Hosts that share the shards, oldest first.
SELECT host_id FROM live_hosts WHERE 'dispatcher' = ANY(roles) ORDER BY host_id;

-- name: shards_give
-- Gives back shards this host still holds.
UPDATE shard_leases SET host_id = NULL WHERE host_id = %(host)s AND shard = ANY(%(shards)s::smallint[]);

-- name: shards_take
-- Takes free shards and those whose holder's lease has ended, while this host's own is live.
WITH free AS (
    SELECT shard FROM shard_leases s
    WHERE NOT EXISTS (SELECT FROM live_hosts l WHERE l.host_id = s.host_id AND 'dispatcher' = ANY(l.roles))
    ORDER BY shard LIMIT %(count)s
    FOR UPDATE SKIP LOCKED
)
UPDATE shard_leases s SET host_id = %(host)s, epoch = s.epoch + 1
FROM free
WHERE s.shard = free.shard AND EXISTS (SELECT FROM live_hosts WHERE host_id = %(host)s)
RETURNING s.shard;
