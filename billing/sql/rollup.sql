-- name: dirty
-- Days to add up, with the marks that were seen. Nobody is held up: what is marked again meanwhile keeps
-- its mark. A tenant's days come together, along the key: its month is then added up once for many of them.
SELECT tenant_id, day, hours, marks FROM billing_dirty_day
WHERE (tenant_id, day) > (%(after)s::uuid, %(day)s::date)
ORDER BY tenant_id, day
LIMIT %(limit)s;

-- name: dirty_of_tenant
-- The same of one tenant's days in [since, until).
SELECT tenant_id, day, hours, marks FROM billing_dirty_day
WHERE tenant_id = %(tenant_id)s AND day >= %(since)s AND day < %(until)s
ORDER BY day;

-- name: clean
-- Takes marks away that are still as they were seen. What somebody is marking just now changes anyway.
DELETE FROM billing_dirty_day d
USING (
    SELECT f.tenant_id, f.day
    FROM unnest(%(tenant_id)s::uuid[], %(day)s::date[], %(marks)s::bigint[]) AS s (tenant_id, day, marks)
    JOIN billing_dirty_day f ON f.tenant_id = s.tenant_id AND f.day = s.day AND f.marks = s.marks
    ORDER BY f.tenant_id, f.day
    FOR UPDATE OF f SKIP LOCKED
) seen
WHERE d.tenant_id = seen.tenant_id AND d.day = seen.day;

-- name: lock_tenants
-- One adder or closer of a tenant at a time, always in this order. The statements behind it begin after
-- whoever had it before has committed.
SELECT pg_advisory_xact_lock(k)
FROM (SELECT DISTINCT hashtextextended('billing.period:' || t, 0) AS k
      FROM unnest(%(tenant_id)s::uuid[]) AS t ORDER BY k) AS locks;

-- name: open_periods
-- Months begin with the first record or by being asked for.
INSERT INTO billing_period (tenant_id, month, state, waits_for)
SELECT DISTINCT t, date_trunc('month', d::timestamp)::date, 'OPEN', '[]'::jsonb
FROM unnest(%(tenant_id)s::uuid[], %(day)s::date[]) AS g (t, d)
ORDER BY 1, 2
ON CONFLICT DO NOTHING;

-- name: of_closed
-- Which of some days lie in a closed month.
SELECT g.t, g.d
FROM unnest(%(tenant_id)s::uuid[], %(day)s::date[]) AS g (t, d)
JOIN billing_period p ON p.tenant_id = g.t AND p.month = date_trunc('month', g.d::timestamp)::date
WHERE p.state = 'CLOSED';

-- name: hours
-- Sums of whole hours from records and their corrections, in place of what stood there.
INSERT INTO billing_usage_hour (tenant_id, hour, metric, region_policy, cell, quantity, records)
SELECT d.tenant_id, h.hour, s.metric, s.region_policy, s.cell, s.quantity, s.records
FROM unnest(%(tenant_id)s::uuid[], %(day)s::date[], %(hours)s::int[]) AS d (tenant_id, day, hours)
CROSS JOIN LATERAL (
    SELECT (d.day::timestamp AT TIME ZONE 'UTC') + n * interval '1 hour' AS hour
    FROM generate_series(0, 23) AS n WHERE d.hours & (1 << n) <> 0
) h
CROSS JOIN LATERAL (
    SELECT r.metric, r.region_policy, r.cell, sum(r.quantity)::bigint AS quantity, sum(r.n)::bigint AS records
    FROM (
        SELECT metric, region_policy, cell, quantity, 1 AS n FROM billing_meter_record
        WHERE tenant_id = d.tenant_id AND minute >= h.hour AND minute < h.hour + interval '1 hour'
        UNION ALL
        SELECT metric, region_policy, cell, quantity, 0 FROM billing_meter_correction
        WHERE tenant_id = d.tenant_id AND minute >= h.hour AND minute < h.hour + interval '1 hour'
    ) r
    GROUP BY r.metric, r.region_policy, r.cell
) s
ON CONFLICT (tenant_id, hour, metric, region_policy, cell) DO UPDATE
SET quantity = excluded.quantity, records = excluded.records
WHERE (billing_usage_hour.quantity, billing_usage_hour.records)
      IS DISTINCT FROM (excluded.quantity, excluded.records);

-- name: days
-- Sums of whole days from hours.
INSERT INTO billing_usage_day (tenant_id, day, metric, region_policy, cell, quantity, records)
SELECT d.tenant_id, d.day, s.metric, s.region_policy, s.cell, s.quantity, s.records
FROM unnest(%(tenant_id)s::uuid[], %(day)s::date[]) AS d (tenant_id, day)
CROSS JOIN LATERAL (
    SELECT h.metric, h.region_policy, h.cell, sum(h.quantity)::bigint AS quantity, sum(h.records)::bigint AS records
    FROM billing_usage_hour h
    WHERE h.tenant_id = d.tenant_id
      AND h.hour >= d.day::timestamp AT TIME ZONE 'UTC'
      AND h.hour < (d.day + 1)::timestamp AT TIME ZONE 'UTC'
    GROUP BY h.metric, h.region_policy, h.cell
) s
ON CONFLICT (tenant_id, day, metric, region_policy, cell) DO UPDATE
SET quantity = excluded.quantity, records = excluded.records, computed_at = now()
WHERE (billing_usage_day.quantity, billing_usage_day.records) IS DISTINCT FROM (excluded.quantity, excluded.records);

-- name: months
-- Sums of whole months from days.
INSERT INTO billing_usage_month (tenant_id, month, metric, region_policy, cell, quantity, records)
SELECT m.tenant_id, m.month, s.metric, s.region_policy, s.cell, s.quantity, s.records
FROM (SELECT DISTINCT t AS tenant_id, date_trunc('month', d::timestamp)::date AS month
      FROM unnest(%(tenant_id)s::uuid[], %(day)s::date[]) AS g (t, d)) m
CROSS JOIN LATERAL (
    SELECT d.metric, d.region_policy, d.cell, sum(d.quantity) AS quantity, sum(d.records)::bigint AS records
    FROM billing_usage_day d
    WHERE d.tenant_id = m.tenant_id AND d.day >= m.month AND d.day < m.month + interval '1 month'
    GROUP BY d.metric, d.region_policy, d.cell
) s
ON CONFLICT (tenant_id, month, metric, region_policy, cell) DO UPDATE
SET quantity = excluded.quantity, records = excluded.records
WHERE (billing_usage_month.quantity, billing_usage_month.records)
      IS DISTINCT FROM (excluded.quantity, excluded.records);

-- name: open_next
-- The month that will bill what is late, even where nothing else happens in it.
INSERT INTO billing_period (tenant_id, month, state, waits_for)
SELECT p.tenant_id, (max(p.month) + interval '1 month')::date, 'OPEN', '[]'::jsonb
FROM billing_period p WHERE p.tenant_id = ANY(%(tenant_id)s::uuid[]) AND p.state = 'CLOSED'
GROUP BY p.tenant_id ORDER BY p.tenant_id
ON CONFLICT DO NOTHING;

-- name: adjust
-- What records and corrections of closed days amount to beyond what their month was closed with and what
-- closed months have billed since, into the first month that is not closed.
INSERT INTO billing_usage_adjustment (tenant_id, into_month, day, metric, region_policy, cell, quantity)
SELECT g.t, n.month, g.d, s.metric, s.region_policy, s.cell, s.quantity
FROM unnest(%(tenant_id)s::uuid[], %(day)s::date[]) AS g (t, d)
CROSS JOIN LATERAL (
    SELECT (max(p.month) + interval '1 month')::date AS month FROM billing_period p
    WHERE p.tenant_id = g.t AND p.state = 'CLOSED'
) n
CROSS JOIN LATERAL (
    SELECT r.metric, r.region_policy, r.cell, sum(r.quantity)::bigint AS quantity
    FROM (
        SELECT metric, region_policy, cell, quantity FROM billing_meter_record
        WHERE tenant_id = g.t AND minute >= g.d::timestamp AT TIME ZONE 'UTC'
          AND minute < (g.d + 1)::timestamp AT TIME ZONE 'UTC'
        UNION ALL
        SELECT metric, region_policy, cell, quantity FROM billing_meter_correction
        WHERE tenant_id = g.t AND minute >= g.d::timestamp AT TIME ZONE 'UTC'
          AND minute < (g.d + 1)::timestamp AT TIME ZONE 'UTC'
        UNION ALL
        SELECT metric, region_policy, cell, -quantity FROM billing_usage_day WHERE tenant_id = g.t AND day = g.d
        UNION ALL
        SELECT metric, region_policy, cell, -quantity FROM billing_usage_adjustment
        WHERE tenant_id = g.t AND day = g.d AND into_month < n.month
    ) r
    GROUP BY r.metric, r.region_policy, r.cell
) s
LEFT JOIN billing_usage_adjustment a
    ON a.tenant_id = g.t AND a.into_month = n.month AND a.day = g.d AND a.metric = s.metric
   AND a.region_policy = s.region_policy AND a.cell = s.cell
WHERE s.quantity <> coalesce(a.quantity, 0)
ON CONFLICT (tenant_id, into_month, day, metric, region_policy, cell) DO UPDATE
SET quantity = excluded.quantity, computed_at = now();
