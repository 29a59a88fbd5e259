-- name: events_append
-- What a transaction has to tell (tenant_id).
INSERT INTO events (tenant_id, type, subject, actor, data)
SELECT * FROM unnest(%(tenants)s::uuid[], %(types)s::text[], %(subjects)s::text[], %(actors)s::text[], %(data)s::bytea[]);

-- name: events_after
-- The events of a tenant behind a position that can no longer get company, oldest first.
SELECT e.xid::text::bigint, seq, at, type, subject, actor, data
FROM events e
WHERE tenant_id = %(tenant)s
  AND (xid, seq) > (%(xid)s::bigint::text::xid8, %(seq)s::bigint)
  AND xid < pg_snapshot_xmin(pg_current_snapshot())
  AND (%(type)s::text IS NULL OR type = %(type)s OR starts_with(type, %(type)s || '.'))
ORDER BY e.xid, e.seq LIMIT %(limit)s;

-- name: events_newest
-- The newest of them, newest first.
SELECT e.xid::text::bigint, seq, at, type, subject, actor, data
FROM events e
WHERE tenant_id = %(tenant)s AND xid < pg_snapshot_xmin(pg_current_snapshot())
  AND (%(type)s::text IS NULL OR type = %(type)s OR starts_with(type, %(type)s || '.'))
ORDER BY e.xid DESC, e.seq DESC LIMIT %(limit)s;
