-- name: latest_minute
-- The newest minute of a tenant's metric within the last hour, over all hosts and policies. A range of
-- the primary key (tenant, minute, …).
SELECT sum(quantity)::bigint AS quantity
FROM billing_meter_record
WHERE tenant_id = %(tenant_id)s AND metric = %(metric)s AND minute > now() - interval '1 hour'
GROUP BY minute
ORDER BY minute DESC
LIMIT 1;
