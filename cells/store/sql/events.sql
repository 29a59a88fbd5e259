-- name: events_append
-- What a transaction has to tell (tenant_id), under the ownership epoch of now.
INSERT INTO events (tenant_id, type, subject, actor, data, epoch)
SELECT n.*, coalesce((SELECT t.ownership_epoch FROM tenants t WHERE t.tenant_id = n.tenant_id), 0)
FROM unnest(%(tenants)s::uuid[], %(types)s::text[], %(subjects)s::text[], %(actors)s::text[], %(data)s::bytea[])
     AS n (tenant_id, type, subject, actor, data);

-- name: events_after
-- The events of a tenant behind a position that can no longer get company, oldest first: those of a type
-- among the next `looks`, and the last one looked at, which says how far that was. What an earlier home wrote
-- is final; the numbers of its transactions mean nothing here.
SELECT e.epoch, e.xid::text::bigint, seq, at, type, subject, actor, data, fits, n
FROM (SELECT looked.*, row_number() OVER (ORDER BY epoch, xid, seq) AS n,
             lead(seq) OVER (ORDER BY epoch, xid, seq) IS NULL AS last,
             %(type)s::text IS NULL OR type = %(type)s OR starts_with(type, %(type)s || '.') AS fits
      FROM (SELECT epoch, xid, seq, at, type, subject, actor, data
            FROM events
            WHERE tenant_id = %(tenant)s
              AND (epoch, xid, seq) > (%(epoch)s::bigint, %(xid)s::bigint::text::xid8, %(seq)s::bigint)
              AND (xid < pg_snapshot_xmin(pg_current_snapshot())
                   OR epoch < (SELECT t.ownership_epoch FROM tenants t WHERE t.tenant_id = %(tenant)s))
            ORDER BY epoch, xid, seq LIMIT %(looks)s) AS looked) AS e
WHERE fits OR last
ORDER BY e.epoch, e.xid, e.seq LIMIT %(limit)s + 1;

-- name: events_newest
-- The newest of them, newest first; with the very newest, whatever its type.
SELECT e.epoch, e.xid::text::bigint, seq, at, type, subject, actor, data, fits, n
FROM (SELECT looked.*, row_number() OVER (ORDER BY epoch DESC, xid DESC, seq DESC) AS n,
             %(type)s::text IS NULL OR type = %(type)s OR starts_with(type, %(type)s || '.') AS fits
      FROM (SELECT epoch, xid, seq, at, type, subject, actor, data
            FROM events
            WHERE tenant_id = %(tenant)s
              AND (xid < pg_snapshot_xmin(pg_current_snapshot())
                   OR epoch < (SELECT t.ownership_epoch FROM tenants t WHERE t.tenant_id = %(tenant)s))
            ORDER BY epoch DESC, xid DESC, seq DESC LIMIT %(looks)s) AS looked) AS e
WHERE fits OR n = 1
ORDER BY e.epoch DESC, e.xid DESC, e.seq DESC LIMIT %(limit)s + 1;
