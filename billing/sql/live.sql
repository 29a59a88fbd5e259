-- name: latest_minute
-- The newest minute of a tenant's metric within the last hour, over all hosts and policies. A range of
-- the primary key (tenant, minute, …).
SELECT sum(quantity)::bigint AS quantity
FROM billing_meter_record
WHERE tenant_id = %(tenant_id)s AND metric = %(metric)s AND minute > now() - interval '1 hour'
GROUP BY minute
ORDER BY minute DESC
LIMIT 1;

-- name: latest_hour
-- Sum, length and newest minute of some tenants' metrics over the last hour.
WITH minutes AS (
    SELECT tenant_id, metric, minute, sum(quantity)::bigint AS quantity
    FROM billing_meter_record
    WHERE tenant_id = ANY(%(tenants)s) AND metric = ANY(%(metrics)s) AND minute > now() - interval '1 hour'
    GROUP BY tenant_id, metric, minute
)
SELECT tenant_id, metric, sum(quantity)::bigint AS total,
       (extract(epoch FROM max(minute) - min(minute)) / 60)::int + 1 AS minutes,
       (array_agg(quantity ORDER BY minute DESC))[1] AS newest
FROM minutes
GROUP BY tenant_id, metric;

-- name: received_by_cell
-- When each cell's meters came last. Sums of days are few; the ledger itself is not looked through.
SELECT cell, max(computed_at) AS at
FROM billing_usage_day
WHERE day >= (now() AT TIME ZONE 'UTC')::date - 1
GROUP BY cell;
