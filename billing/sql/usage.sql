-- name: take_dirty
-- Days to add up, each by one worker. Whoever marks such a day again waits for this transaction,
-- so records that it does not see leave a new mark.
DELETE FROM billing_dirty_day d
USING (
    SELECT tenant_id, day FROM billing_dirty_day
    ORDER BY day, tenant_id
    FOR UPDATE SKIP LOCKED
    LIMIT %(limit)s
) due
WHERE d.tenant_id = due.tenant_id AND d.day = due.day
RETURNING d.tenant_id, d.day;

-- name: recompute
-- Sums of whole days from the ledger, in place of what stood there.
INSERT INTO billing_usage_day (tenant_id, day, metric, region_policy, cell, quantity, records)
SELECT d.tenant_id, d.day, s.metric, s.region_policy, s.cell, s.quantity, s.records
FROM unnest(%(tenant_id)s::uuid[], %(day)s::date[]) AS d (tenant_id, day)
CROSS JOIN LATERAL (
    SELECT r.metric, r.region_policy, r.cell, sum(r.quantity)::bigint AS quantity, count(*) AS records
    FROM billing_meter_record r
    WHERE r.tenant_id = d.tenant_id
      AND r.minute >= d.day::timestamp AT TIME ZONE 'UTC'
      AND r.minute < (d.day + 1)::timestamp AT TIME ZONE 'UTC'
    GROUP BY r.metric, r.region_policy, r.cell
) s
ON CONFLICT (tenant_id, day, metric, region_policy, cell) DO UPDATE
SET quantity = excluded.quantity, records = excluded.records, computed_at = now()
WHERE (billing_usage_day.quantity, billing_usage_day.records) IS DISTINCT FROM (excluded.quantity, excluded.records);

-- name: usage_of_tenant
-- A tenant's usage by day, metric and region policy over a half-open range of days.
SELECT day, metric, region_policy, sum(quantity)::bigint AS quantity
FROM billing_usage_day
WHERE tenant_id = %(tenant_id)s AND day >= %(since)s AND day < %(until)s
GROUP BY day, metric, region_policy
ORDER BY day, metric, region_policy;

-- name: usage_of_all
-- Everybody's usage by day, tenant, metric and region policy, from the given tenants' days on.
SELECT day, tenant_id, metric, region_policy, sum(quantity)::bigint AS quantity
FROM billing_usage_day
WHERE day >= %(since)s AND day < %(until)s AND tenant_id = ANY(%(tenants)s)
GROUP BY day, tenant_id, metric, region_policy
ORDER BY tenant_id, day, metric, region_policy;

-- name: tenants_with_usage
-- Tenants that used anything in a half-open range of days, a page at a time.
SELECT DISTINCT tenant_id FROM billing_usage_day
WHERE day >= %(since)s AND day < %(until)s AND (%(after)s::uuid IS NULL OR tenant_id > %(after)s::uuid)
ORDER BY tenant_id
LIMIT %(limit)s;
