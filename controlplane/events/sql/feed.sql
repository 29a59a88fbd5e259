-- name: position
-- Where the feed stands: every transaction below `xmin` is finished, none at or above `xmax` has begun.
SELECT h.identity::text, h.oldest_xid,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax
FROM routing_feed_horizon h;

-- name: changed_since
-- What changed in transactions at or above the cursor that can be seen now. Those above `xmin`
-- will be seen again, because the cursor stops at xmin; so nothing is late and nothing is lost.
SELECT kind, key, max(id) AS last
FROM routing_change
WHERE xid >= %(xid)s::text::xid8
GROUP BY kind, key
ORDER BY last
LIMIT %(limit)s;

-- name: prune
-- Forgets rows of finished transactions older than the kept time, and says so in the horizon.
WITH gone AS (
    DELETE FROM routing_change
    WHERE at < now() - make_interval(secs => %(keep_seconds)s)
      AND xid < pg_snapshot_xmin(pg_current_snapshot())
    RETURNING xid
)
UPDATE routing_feed_horizon
SET oldest_xid = greatest(oldest_xid, (SELECT max(xid::text::bigint) + 1 FROM gone))
WHERE EXISTS (SELECT FROM gone);

-- name: used
-- Last-used times of keys; never backwards. Locked in the order of ids: several routers report.
WITH used AS (
    SELECT k.id, to_timestamp(u.used_ms / 1000.0) AS at
    FROM unnest(%(ids)s::text[], %(used_ms)s::bigint[]) AS u (id, used_ms) JOIN tenants_apikey k ON k.id = u.id
    ORDER BY k.id
    FOR NO KEY UPDATE OF k
)
UPDATE tenants_apikey k SET last_used_at = used.at
FROM used WHERE k.id = used.id AND (k.last_used_at IS NULL OR k.last_used_at < used.at);
