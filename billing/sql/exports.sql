-- name: due
-- Exports that a worker may take now: asked for, or left behind by a worker whose lease lapsed.
SELECT id FROM billing_export
WHERE (state = 'REQUESTED' AND due_at <= statement_timestamp())
   OR (state = 'RUNNING' AND leased_until < statement_timestamp())
ORDER BY due_at, id LIMIT %(limit)s;

-- name: begin
-- Takes an export that waits; nobody gets it twice.
UPDATE billing_export
SET state = 'RUNNING', lease = %(lease)s, leased_until = statement_timestamp() + make_interval(secs => %(seconds)s),
    attempts = attempts + 1, rows_done = 0, started_at = coalesce(started_at, statement_timestamp())
WHERE id = %(id)s AND state = 'REQUESTED' AND due_at <= statement_timestamp()
RETURNING id;

-- name: take_over
-- Takes an export whose worker has not been heard of for as long as its lease was.
UPDATE billing_export
SET lease = %(lease)s, leased_until = statement_timestamp() + make_interval(secs => %(seconds)s),
    attempts = attempts + 1, rows_done = 0
WHERE id = %(id)s AND state = 'RUNNING' AND leased_until < statement_timestamp()
RETURNING id;

-- name: progress
-- How far the holder of the lease is; the lease is as new again.
UPDATE billing_export
SET rows_done = %(done)s, rows_expected = coalesce(%(expected)s, rows_expected),
    leased_until = statement_timestamp() + make_interval(secs => %(seconds)s)
WHERE id = %(id)s AND state = 'RUNNING' AND lease = %(lease)s
RETURNING id;

-- name: finish
-- Its files are whole.
UPDATE billing_export
SET state = 'DONE', lease = NULL, leased_until = NULL, files = %(files)s, rows_done = %(done)s,
    rows_expected = %(done)s, error = '', finished_at = statement_timestamp(),
    expires_at = statement_timestamp() + make_interval(days => %(days)s)
WHERE id = %(id)s AND state = 'RUNNING' AND lease = %(lease)s
RETURNING id;

-- name: retry
-- Not done: later again.
UPDATE billing_export
SET state = 'REQUESTED', lease = NULL, leased_until = NULL, error = %(error)s,
    due_at = statement_timestamp() + make_interval(secs => %(delay)s)
WHERE id = %(id)s AND state = 'RUNNING' AND lease = %(lease)s
RETURNING id;

-- name: give_up
-- Not done, and not tried again.
UPDATE billing_export
SET state = 'FAILED', lease = NULL, leased_until = NULL, error = %(error)s, finished_at = statement_timestamp()
WHERE id = %(id)s AND state = 'RUNNING' AND lease = %(lease)s
RETURNING id;

-- name: expire
-- Exports that were kept long enough are nobody's any more.
UPDATE billing_export SET state = 'EXPIRED' WHERE state = 'DONE' AND expires_at <= %(now)s RETURNING id;

-- name: to_clean
-- Exports that are over and may still have files somewhere.
SELECT id FROM billing_export
WHERE state IN ('EXPIRED', 'FAILED') AND cleaned_at IS NULL ORDER BY id LIMIT %(limit)s;

-- name: cleaned
-- Nothing of an export is left.
UPDATE billing_export SET cleaned_at = statement_timestamp(), files = '[]'
WHERE id = %(id)s AND state IN ('EXPIRED', 'FAILED') AND cleaned_at IS NULL;

-- name: count_usage
-- How many hours a usage export has.
SELECT count(*) FROM billing_usage_hour
WHERE (%(tenant)s::uuid IS NULL OR tenant_id = %(tenant)s) AND hour >= %(since)s AND hour < %(until)s;

-- name: count_lines
-- How many lines an export of invoices has.
SELECT count(*) FROM billing_invoice_line l JOIN billing_invoice i ON i.id = l.invoice_id
WHERE (%(tenant)s::uuid IS NULL OR i.tenant_id = %(tenant)s) AND i.sequence IS NOT NULL
  AND i.period_start >= %(since)s AND i.period_start < %(until)s AND i.finalized_at <= %(at)s;

-- name: usage_page
-- Hours of usage behind a place, in the order of their key.
SELECT tenant_id, hour, metric, region_policy, cell, quantity FROM billing_usage_hour
WHERE (%(tenant)s::uuid IS NULL OR tenant_id = %(tenant)s) AND hour >= %(since)s AND hour < %(until)s
  AND (%(after_tenant)s::uuid IS NULL
       OR (tenant_id, hour, metric, region_policy, cell)
        > (%(after_tenant)s::uuid, %(after_hour)s::timestamptz, %(after_metric)s::text, %(after_policy)s::text,
           %(after_cell)s::text))
ORDER BY tenant_id, hour, metric, region_policy, cell LIMIT %(limit)s;

-- name: lines_page
-- Lines of numbered invoices behind a place, by tenant, month, invoice and line; the state as it was.
SELECT i.tenant_id, i.id, i.number,
       CASE WHEN i.settled_at <= %(at)s THEN i.state ELSE 'FINAL' END AS state,
       i.currency, i.period_start, i.period_end, l.n, l.kind, l.metric, l.region_policy, l.start, l."end", l.tier,
       l.quantity, l.priced, l.unit_amount, l.per, l.book, l.exact, l.amount
FROM billing_invoice_line l JOIN billing_invoice i ON i.id = l.invoice_id
WHERE (%(tenant)s::uuid IS NULL OR i.tenant_id = %(tenant)s) AND i.sequence IS NOT NULL
  AND i.period_start >= %(since)s AND i.period_start < %(until)s AND i.finalized_at <= %(at)s
  AND (%(after_tenant)s::uuid IS NULL
       OR (i.tenant_id, i.period_start, i.id, l.n)
        > (%(after_tenant)s::uuid, %(after_start)s::date, %(after_invoice)s::uuid, %(after_n)s::int))
ORDER BY i.tenant_id, i.period_start, i.id, l.n LIMIT %(limit)s;

-- name: payers_page
-- Tenants with usage, invoices or credit notes in a half-open range of days, behind one of them.
SELECT tenant_id FROM (
    SELECT tenant_id FROM billing_usage_day WHERE day >= %(since)s AND day < %(until)s
    UNION SELECT tenant_id FROM billing_invoice
          WHERE period_start >= %(since)s AND period_start < %(until)s AND sequence IS NOT NULL
    UNION SELECT tenant_id FROM billing_credit_note
          WHERE created_at >= %(since_at)s AND created_at < %(until_at)s
    UNION SELECT tenant_id FROM billing_usage_adjustment
          WHERE into_month >= %(since)s AND into_month < %(until)s
) t
WHERE (%(tenant)s::uuid IS NULL OR tenant_id = %(tenant)s)
  AND (%(after)s::uuid IS NULL OR tenant_id > %(after)s::uuid)
ORDER BY tenant_id LIMIT %(limit)s;

-- name: hours_of
-- The hours of one tenant's metric under one policy, in time.
SELECT hour, cell, quantity FROM billing_usage_hour
WHERE tenant_id = %(tenant)s AND metric = %(metric)s AND region_policy = %(policy)s
  AND hour >= %(since)s AND hour < %(until)s
ORDER BY hour, cell;

-- name: month_is_ready
-- Whether a month is closed and no draft of its invoice lies open; for operators (no tenant): everybody's.
SELECT NOT EXISTS (
    SELECT FROM billing_period p
    WHERE p.month = %(month)s AND p.state <> 'CLOSED' AND (%(tenant)s::uuid IS NULL OR p.tenant_id = %(tenant)s)
) AND EXISTS (
    SELECT FROM billing_period p
    WHERE p.month = %(month)s AND p.state = 'CLOSED' AND (%(tenant)s::uuid IS NULL OR p.tenant_id = %(tenant)s)
) AND (NOT %(invoiced)s OR NOT EXISTS (
    SELECT FROM billing_period p
    WHERE p.month = %(month)s AND (%(tenant)s::uuid IS NULL OR p.tenant_id = %(tenant)s)
      AND p.closed_at > %(now)s::timestamptz - interval '2 hours'
      AND NOT EXISTS (SELECT FROM billing_invoice i WHERE i.tenant_id = p.tenant_id AND i.period_start = p.month)
) AND NOT EXISTS (
    SELECT FROM billing_invoice i
    WHERE i.period_start = %(month)s AND i.state = 'DRAFT' AND (%(tenant)s::uuid IS NULL OR i.tenant_id = %(tenant)s)
));
