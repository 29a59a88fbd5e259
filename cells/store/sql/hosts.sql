-- name: host_register
-- A new process start, leased from now, but not beyond the cell's own lease; no row where that has ended.
INSERT INTO hosts (name, roles, lease_expires_at)
SELECT %(name)s, %(roles)s, least(clock_timestamp() + %(lease_ms)s * interval '1 millisecond', c.lease_until)
FROM cell c WHERE c.lease_until IS NULL OR c.lease_until > clock_timestamp()
RETURNING host_id, clock_timestamp(),
          least(%(lease_ms)s, floor(extract(epoch FROM lease_expires_at - clock_timestamp()) * 1000) + 1)::int,
          (SELECT epoch FROM cell);

-- name: host_renew
-- Extends a lease that has not ended, but not beyond the cell's own; a lapsed host never comes back.
UPDATE hosts h SET lease_expires_at = least(clock_timestamp() + %(lease_ms)s * interval '1 millisecond', c.lease_until)
FROM cell c
WHERE h.host_id = %(host)s AND h.state = 'LIVE' AND h.lease_expires_at > clock_timestamp()
  AND (c.lease_until IS NULL OR c.lease_until > clock_timestamp())
RETURNING h.name, clock_timestamp(),
          least(%(lease_ms)s, floor(extract(epoch FROM h.lease_expires_at - clock_timestamp()) * 1000) + 1)::int, c.epoch;

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
