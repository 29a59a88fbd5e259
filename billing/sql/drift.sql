-- name: of_day
-- What the ledger and the rollups hold of a metric of some tenants' day on a cell. A day that is being
-- added up has no rollup to speak of.
SELECT t.tenant_id, s.region_policy, sum(s.ledger)::bigint AS ledger, sum(s.rollup)::bigint AS rollup,
       EXISTS (SELECT FROM billing_dirty_day d WHERE d.tenant_id = t.tenant_id AND d.day = %(day)s) AS dirty
FROM (
    SELECT unnest(%(tenants)s::uuid[]) AS tenant_id
    UNION
    SELECT tenant_id FROM billing_usage_day WHERE day = %(day)s AND cell = %(cell)s AND metric = %(metric)s
) t
CROSS JOIN LATERAL (
    SELECT region_policy, quantity AS ledger, 0 AS rollup FROM billing_meter_record
    WHERE tenant_id = t.tenant_id AND metric = %(metric)s AND cell = %(cell)s
      AND minute >= %(day)s::timestamp AT TIME ZONE 'UTC' AND minute < (%(day)s + 1)::timestamp AT TIME ZONE 'UTC'
    UNION ALL
    SELECT region_policy, quantity, 0 FROM billing_meter_correction
    WHERE tenant_id = t.tenant_id AND metric = %(metric)s AND cell = %(cell)s
      AND minute >= %(day)s::timestamp AT TIME ZONE 'UTC' AND minute < (%(day)s + 1)::timestamp AT TIME ZONE 'UTC'
    UNION ALL
    SELECT region_policy, 0, quantity FROM billing_usage_day
    WHERE tenant_id = t.tenant_id AND day = %(day)s AND metric = %(metric)s AND cell = %(cell)s
    UNION ALL
    SELECT region_policy, 0, quantity FROM billing_usage_adjustment
    WHERE tenant_id = t.tenant_id AND day = %(day)s AND metric = %(metric)s AND cell = %(cell)s
) s
GROUP BY t.tenant_id, s.region_policy;

-- name: find
-- Keeps differences; one that stays is the same alarm. What a person settled with the same figures is
-- none any more. Says which ones are open.
INSERT INTO billing_drift_finding AS f (tenant_id, day, cell, metric, region_policy, ledger, rollup, counted, settled_by)
SELECT t, %(day)s, %(cell)s, %(metric)s, p, l, r, c, ''
FROM unnest(%(tenants)s::uuid[], %(policies)s::text[], %(ledgers)s::bigint[], %(rollups)s::bigint[], %(counts)s::bigint[])
     AS d (t, p, l, r, c)
WHERE NOT EXISTS (
    SELECT FROM billing_drift_finding s
    WHERE s.tenant_id = d.t AND s.day = %(day)s AND s.cell = %(cell)s AND s.metric = %(metric)s
      AND s.region_policy = d.p AND (s.ledger, s.rollup, s.counted) = (d.l, d.r, d.c)
      AND s.settled_at IS NOT NULL AND s.settled_by <> 'service:drift')
ON CONFLICT (tenant_id, day, cell, metric, region_policy) WHERE settled_at IS NULL DO UPDATE
SET ledger = excluded.ledger, rollup = excluded.rollup, counted = excluded.counted, last_at = now()
RETURNING tenant_id, region_policy;

-- name: settle
-- What is equal again needs nobody any more.
UPDATE billing_drift_finding f SET settled_at = now(), settled_by = 'service:drift'
WHERE f.day = %(day)s AND f.cell = %(cell)s AND f.settled_at IS NULL
  AND NOT EXISTS (SELECT FROM unnest(%(tenants)s::uuid[], %(policies)s::text[]) AS d (t, p)
                  WHERE d.t = f.tenant_id AND d.p = f.region_policy);

-- name: checked
-- When a cell's day was compared, and what came of it.
INSERT INTO billing_drift_check AS c (cell, day, tenants, differences)
VALUES (%(cell)s, %(day)s, %(looked)s, %(differences)s)
ON CONFLICT (cell, day) DO UPDATE SET tenants = excluded.tenants, differences = excluded.differences, at = now();

-- name: due
-- The newest whole days that a cell has sealed and that were not compared lately, newest first.
SELECT d::date FROM billing_meter_watermark w,
LATERAL generate_series((w.sealed_until AT TIME ZONE 'UTC')::date - %(days)s, (w.sealed_until AT TIME ZONE 'UTC')::date - 1,
                        interval '1 day') AS d
WHERE w.cell = %(cell)s AND w.store = 0
  AND w.epoch = (SELECT max(epoch) FROM billing_meter_watermark WHERE cell = w.cell AND store = 0)
  AND NOT EXISTS (SELECT FROM billing_drift_check c WHERE c.cell = w.cell AND c.day = d::date
                  AND c.at > now() - CASE WHEN c.differences > 0 THEN interval '10 minutes' ELSE interval '12 hours' END)
ORDER BY d DESC;
