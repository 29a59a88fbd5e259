-- name: lock_tenant
-- One adder or closer of a tenant at a time (see rollup.sql).
SELECT pg_advisory_xact_lock(hashtextextended('billing.period:' || %(tenant_id)s::uuid, 0));

-- name: is_over
-- Whether an instant is behind us.
SELECT %(end)s <= now();

-- name: open
-- Begins periods of a month, where there are none.
INSERT INTO billing_period (tenant_id, month, state, waits_for)
SELECT t, %(month)s, 'OPEN', '[]'::jsonb FROM unnest(%(tenants)s::uuid[]) AS t ORDER BY t
ON CONFLICT DO NOTHING;

-- name: state
-- A period, the first earlier one that is not closed, and whether records of it wait to be added up.
SELECT p.state,
       (SELECT min(e.month) FROM billing_period e
        WHERE e.tenant_id = p.tenant_id AND e.month < p.month AND e.state <> 'CLOSED'),
       EXISTS (SELECT FROM billing_dirty_day d
               WHERE d.tenant_id = p.tenant_id AND d.day >= p.month AND d.day < p.month + interval '1 month')
FROM billing_period p
WHERE p.tenant_id = %(tenant_id)s AND p.month = %(month)s
FOR UPDATE OF p;

-- name: wait
-- Says what a period waits for.
UPDATE billing_period SET state = 'CLOSING', waits_for = %(waits_for)s::jsonb
WHERE tenant_id = %(tenant_id)s AND month = %(month)s
  AND (state, waits_for) IS DISTINCT FROM ('CLOSING', %(waits_for)s::jsonb);

-- name: close
-- Closes a period, with what it relied on and what it holds.
UPDATE billing_period p
SET state = 'CLOSED', closed_at = now(), waits_for = '[]'::jsonb,
    evidence = %(evidence)s::jsonb || jsonb_build_object('sums', (
        SELECT coalesce(jsonb_object_agg(m.metric, m.quantity::text), '{}'::jsonb)
        FROM (SELECT metric, sum(quantity) AS quantity FROM billing_usage_month
              WHERE tenant_id = p.tenant_id AND month = p.month GROUP BY metric) m))
WHERE p.tenant_id = %(tenant_id)s AND p.month = %(month)s
RETURNING closed_at;

-- name: due
-- Periods that may be over, as far as any cell has said; a page of them behind a place.
SELECT p.tenant_id, p.month FROM billing_period p
WHERE p.state <> 'CLOSED' AND (p.month + interval '1 month') AT TIME ZONE 'UTC'
      <= (SELECT max(sealed_until) FROM billing_meter_watermark)
  AND (p.month, p.tenant_id) > (%(month)s::date, %(after)s::uuid)
ORDER BY p.month, p.tenant_id
LIMIT %(limit)s;

-- name: first_open
-- The first month of each of some tenants that is not closed.
SELECT tenant_id, min(month) FROM billing_period
WHERE tenant_id = ANY(%(tenants)s::uuid[]) AND state <> 'CLOSED' GROUP BY tenant_id;

-- name: wait_many
-- Says what the periods of a month wait for, where that is news.
UPDATE billing_period p SET state = 'CLOSING', waits_for = w.waits_for
FROM unnest(%(tenants)s::uuid[], %(waits)s::jsonb[]) AS w (tenant_id, waits_for)
WHERE p.month = %(month)s AND p.tenant_id = w.tenant_id AND p.state <> 'CLOSED'
  AND (p.state, p.waits_for) IS DISTINCT FROM ('CLOSING', w.waits_for);

-- name: watermark
-- How far a store has sealed under an epoch; it never falls.
INSERT INTO billing_meter_watermark AS w (cell, store, epoch, sealed_until)
SELECT %(cell)s, store, epoch, sealed_until
FROM unnest(%(store)s::smallint[], %(epoch)s::bigint[], %(sealed_until)s::timestamptz[]) AS s (store, epoch, sealed_until)
ORDER BY store, epoch
ON CONFLICT (cell, store, epoch) DO UPDATE SET sealed_until = excluded.sealed_until, received_at = now()
WHERE w.sealed_until IS NULL OR excluded.sealed_until > w.sealed_until;

-- name: known_owners
-- Whoever counts under an epoch must seal under it, too: it is known from its first record on.
INSERT INTO billing_meter_watermark (cell, store, epoch)
SELECT cell, store, epoch
FROM unnest(%(cell)s::text[], %(store)s::smallint[], %(epoch)s::bigint[]) AS o (cell, store, epoch)
ORDER BY cell, store, epoch
ON CONFLICT DO NOTHING;

-- name: watermarks
-- The newest owner's watermark of each store of some cells.
SELECT DISTINCT ON (cell, store) cell, store, epoch, sealed_until
FROM billing_meter_watermark
WHERE cell = ANY(%(cells)s)
ORDER BY cell, store, epoch DESC;

-- name: sealed_most
-- How far the cell has sealed that has sealed most.
SELECT max(sealed_until) FROM billing_meter_watermark;

-- name: incarnations
-- What incarnations of routers say of what they counted; those that have ended are forgotten.
WITH said AS (
    SELECT * FROM unnest(%(hosts)s::text[], %(sealed_until)s::timestamptz[], %(ended)s::boolean[])
                  AS s (host, sealed_until, ended)
),
over AS (DELETE FROM billing_router_mark m USING said s WHERE m.host = s.host AND s.ended)
INSERT INTO billing_router_mark AS m (host, sealed_until)
SELECT host, sealed_until FROM said WHERE NOT ended ORDER BY host
ON CONFLICT (host) DO UPDATE SET sealed_until = greatest(m.sealed_until, excluded.sealed_until), heard_at = now();

-- name: silent_incarnations
-- Incarnations of routers that may still count for minutes before an instant, if they were heard of lately.
SELECT host, sealed_until FROM billing_router_mark
WHERE sealed_until < %(end)s AND heard_at > now() - interval '3 days'
ORDER BY host;

-- name: forget_incarnations
-- Those that nothing is taken from any more.
DELETE FROM billing_router_mark WHERE heard_at < now() - interval '36 days';
