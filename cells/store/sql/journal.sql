-- name: journal_append
-- The last statement of every writing transaction, and its fence: without a live host and cell
-- lease there is no epoch, and the null makes the whole transaction fail. A row is never dated
-- into a minute that has been closed, whatever the clock did.
INSERT INTO journal (at, host_id, seq, epoch, body)
SELECT greatest(transaction_timestamp(), (SELECT sealed_until FROM cell)),
       %(host)s, %(seq)s,
       (SELECT epoch FROM live_hosts WHERE host_id = %(host)s),
       %(body)s;

-- name: fold_lock
-- One reader of the journal at a time.
SELECT pg_try_advisory_xact_lock(hashtext('clockhouse.fold'));

-- name: fold_cursor
-- Where the reader stands, and how far the journal is final.
SELECT (SELECT xid::text::bigint FROM journal_readers WHERE name = %(name)s),
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: fold_rows
-- Final rows from the cursor on, in commit-safe order.
SELECT xid::text::bigint, date_trunc('minute', at, 'UTC'), body
FROM journal
WHERE xid >= %(from_xid)s::bigint::text::xid8 AND xid < %(to_xid)s::bigint::text::xid8
ORDER BY xid
LIMIT %(page)s;

-- name: fold_advance
-- Moves the cursor, in the transaction that folded.
INSERT INTO journal_readers (name, xid) VALUES (%(name)s, %(xid)s::bigint::text::xid8)
ON CONFLICT (name) DO UPDATE SET xid = excluded.xid, at = now();

-- name: fold_stats
-- Adds folded counts to their tenants' minutes (tenant_id, minute).
INSERT INTO run_stats AS s (tenant_id, minute, started, succeeded, failed, retried, cancelled, skipped,
                            lag_sum_ms, lag_max_ms, lag_le)
SELECT tenant_id, minute, started, succeeded, failed, retried, cancelled, skipped, lag_sum_ms, lag_max_ms,
       string_to_array(lag_le, ',')::bigint[]
FROM unnest(%(tenants)s::uuid[], %(minutes)s::timestamptz[], %(started)s::bigint[], %(succeeded)s::bigint[],
            %(failed)s::bigint[], %(retried)s::bigint[], %(cancelled)s::bigint[], %(skipped)s::bigint[],
            %(lag_sums)s::bigint[], %(lag_maxima)s::bigint[], %(lag_les)s::text[])
     AS n (tenant_id, minute, started, succeeded, failed, retried, cancelled, skipped, lag_sum_ms, lag_max_ms, lag_le)
ON CONFLICT (tenant_id, minute) DO UPDATE SET
    started = s.started + excluded.started,
    succeeded = s.succeeded + excluded.succeeded,
    failed = s.failed + excluded.failed,
    retried = s.retried + excluded.retried,
    cancelled = s.cancelled + excluded.cancelled,
    skipped = s.skipped + excluded.skipped,
    lag_sum_ms = s.lag_sum_ms + excluded.lag_sum_ms,
    lag_max_ms = greatest(s.lag_max_ms, excluded.lag_max_ms),
    lag_le = (SELECT array_agg(a + b ORDER BY i)
              FROM unnest(s.lag_le, excluded.lag_le) WITH ORDINALITY AS u (a, b, i));

-- name: stats_read
-- A tenant's minutes in a range.
SELECT minute, started, succeeded, failed, retried, cancelled, skipped, lag_sum_ms, lag_max_ms, lag_le
FROM run_stats
WHERE tenant_id = %(tenant)s AND minute >= %(since)s AND minute < %(until)s
ORDER BY minute;
