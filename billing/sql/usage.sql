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

-- name: usage_of
-- A tenant's usage by day, metric, region policy and cell over a half-open range of days.
SELECT day, metric, region_policy, cell, quantity
FROM billing_usage_day
WHERE tenant_id = %(tenant_id)s AND day >= %(since)s AND day < %(until)s
ORDER BY day, metric, region_policy, cell;

-- name: grouped
-- A tenant's usage over a half-open range of days, by day and policy as asked for, behind a place.
SELECT day, metric, region_policy, quantity FROM (
    SELECT CASE WHEN %(by_day)s THEN day END AS day, metric,
           CASE WHEN %(by_policy)s THEN region_policy END AS region_policy, sum(quantity) AS quantity
    FROM billing_usage_day
    WHERE tenant_id = %(tenant_id)s AND day >= %(since)s AND day < %(until)s
    GROUP BY 1, 2, 3
) s
WHERE NOT %(after)s OR (coalesce(day, 'epoch'::date), metric, coalesce(region_policy, ''))
                     > (coalesce(%(day)s::date, 'epoch'::date), %(metric)s::text, %(policy)s::text)
ORDER BY day, metric, region_policy
LIMIT %(limit)s;
