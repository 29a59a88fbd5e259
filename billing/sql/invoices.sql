-- name: lock_account
-- The tenant's billing account, made if it has none, and locked: the one lock of a tenant's money.
INSERT INTO billing_account (tenant_id, currency, legal_name, address, tax_id, emails, taxes, version)
VALUES (%(tenant_id)s, %(currency)s, '', '', '', '{}', '[]', 1)
ON CONFLICT (tenant_id) DO UPDATE SET tenant_id = excluded.tenant_id
RETURNING currency;

-- name: next_number
-- The next number of an issuer's series. Its row stays locked until the caller's transaction ends.
INSERT INTO billing_number_series (issuer, kind, last) VALUES (%(issuer)s, %(kind)s, 1)
ON CONFLICT (issuer, kind) DO UPDATE SET last = billing_number_series.last + 1
RETURNING last;

-- name: to_be_drafted
-- Months that were closed since an instant, never had an invoice and are not known to come to nothing; a page at a time, oldest first. What
-- was made void is not to be paid: whoever wants another one in its place asks for it.
SELECT p.month, p.tenant_id
FROM billing_period p
WHERE p.state = 'CLOSED' AND p.closed_at >= %(since)s
  AND (%(after_month)s::date IS NULL OR (p.month, p.tenant_id) > (%(after_month)s, %(after_tenant)s::uuid))
  AND NOT EXISTS (
      SELECT FROM billing_invoice i
      WHERE i.tenant_id = p.tenant_id AND i.period_start = p.month
  )
  AND NOT EXISTS (SELECT FROM billing_nothing_due n WHERE n.tenant_id = p.tenant_id AND n.month = p.month)
ORDER BY p.month, p.tenant_id
LIMIT %(limit)s;

-- name: records_of_line
-- The meter records behind a usage day of a line, and what was corrected of each behind it (`correction` is
-- empty for the record itself), a page at a time, in the ledger's order.
SELECT r.minute, r.cell, r.store, r.epoch, r.host, r.correction, r.quantity, r.reason
FROM (
    SELECT minute, cell, store, epoch, host, '' AS correction, quantity, '' AS reason
    FROM billing_meter_record
    WHERE tenant_id = %(tenant_id)s AND metric = %(metric)s AND region_policy = %(region_policy)s
      AND minute >= %(since)s AND minute < %(until)s
    UNION ALL
    SELECT minute, cell, store, epoch, host, id::text, quantity, reason
    FROM billing_meter_correction
    WHERE tenant_id = %(tenant_id)s AND metric = %(metric)s AND region_policy = %(region_policy)s
      AND minute >= %(since)s AND minute < %(until)s
) r
WHERE %(after_minute)s::timestamptz IS NULL
   OR (r.minute, r.cell, r.store, r.epoch, r.host, r.correction)
    > (%(after_minute)s, %(after_cell)s, %(after_store)s, %(after_epoch)s, %(after_host)s, %(after_correction)s)
ORDER BY r.minute, r.cell, r.store, r.epoch, r.host, r.correction
LIMIT %(limit)s;

-- name: alert
-- A threshold was reached; a row comes back only for whoever says so first.
INSERT INTO billing_budget_alert (tenant_id, month, threshold, budget, spent, currency)
VALUES (%(tenant_id)s, %(month)s, %(threshold)s, %(budget)s, %(spent)s, %(currency)s)
ON CONFLICT DO NOTHING
RETURNING id;
