-- name: take
-- Puts a batch into the ledger, finds what was there already, alarms about what contradicts it,
-- and marks the days that changed: all in one statement, so a record is billed exactly if its
-- sender hears that it was taken. Inputs are columns, in the senders' order; no key twice.
-- The CTE `known` sees the table as it was before: only records that `taken` lacks are looked up.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(
        %(n)s::int[], %(tenant_id)s::uuid[], %(minute)s::timestamptz[], %(metric)s::text[],
        %(region_policy)s::text[], %(cell)s::text[], %(store)s::smallint[], %(epoch)s::bigint[],
        %(host)s::text[], %(quantity)s::bigint[]
    ) AS g (n, tenant_id, minute, metric, region_policy, cell, store, epoch, host, quantity)
    ORDER BY tenant_id, minute, metric, region_policy, cell, store, epoch, host
),
taken AS (
    INSERT INTO billing_meter_record
        (tenant_id, minute, metric, region_policy, cell, store, epoch, host, quantity)
    SELECT tenant_id, minute, metric, region_policy, cell, store, epoch, host, quantity FROM given
    ON CONFLICT DO NOTHING
    RETURNING tenant_id, minute, metric, region_policy, cell, store, epoch, host
),
dirty AS (
    INSERT INTO billing_dirty_day (tenant_id, day, marks, hours)
    SELECT tenant_id, (minute AT TIME ZONE 'UTC')::date AS day, 1,
           bit_or(1 << extract(hour FROM minute AT TIME ZONE 'UTC')::int)
    FROM taken GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (tenant_id, day) DO UPDATE
    SET marks = billing_dirty_day.marks + 1, hours = billing_dirty_day.hours | excluded.hours
)
SELECT g.n, t.tenant_id IS NOT NULL AS fresh
FROM given g
LEFT JOIN taken t USING (tenant_id, minute, metric, region_policy, cell, store, epoch, host);

-- name: compare
-- What stands in the ledger for records that were not new.
SELECT g.n, r.quantity
FROM unnest(
    %(n)s::int[], %(tenant_id)s::uuid[], %(minute)s::timestamptz[], %(metric)s::text[],
    %(region_policy)s::text[], %(cell)s::text[], %(store)s::smallint[], %(epoch)s::bigint[],
    %(host)s::text[]
) AS g (n, tenant_id, minute, metric, region_policy, cell, store, epoch, host)
JOIN billing_meter_record r USING (tenant_id, minute, metric, region_policy, cell, store, epoch, host);

-- name: alarm
-- Remembers contradictions; the same one again is the same alarm.
INSERT INTO billing_meter_conflict
    (tenant_id, minute, metric, region_policy, cell, store, epoch, host, recorded, refused, settled_by)
SELECT tenant_id, minute, metric, region_policy, cell, store, epoch, host, recorded, refused, ''
FROM unnest(
    %(tenant_id)s::uuid[], %(minute)s::timestamptz[], %(metric)s::text[], %(region_policy)s::text[],
    %(cell)s::text[], %(store)s::smallint[], %(epoch)s::bigint[], %(host)s::text[],
    %(recorded)s::bigint[], %(refused)s::bigint[]
) AS c (tenant_id, minute, metric, region_policy, cell, store, epoch, host, recorded, refused)
ON CONFLICT DO NOTHING;

-- name: lock_record
-- One correction of a record at a time.
SELECT pg_advisory_xact_lock(hashtextextended('billing.correction:' || %(key)s::text, 0));

-- name: mark
-- The day of a minute is to be added up again.
INSERT INTO billing_dirty_day (tenant_id, day, marks, hours)
VALUES (%(tenant_id)s, (%(minute)s::timestamptz AT TIME ZONE 'UTC')::date, 1,
        1 << extract(hour FROM %(minute)s::timestamptz AT TIME ZONE 'UTC')::int)
ON CONFLICT (tenant_id, day) DO UPDATE
SET marks = billing_dirty_day.marks + 1, hours = billing_dirty_day.hours | excluded.hours;
