-- name: cell_punctuality
-- Of all tenants' runs that were due in [since, until): how many, how many began, how many began and were not begun
-- again after a loss, how late they began at first (milliseconds: median, 99th percentile, most), claims that are lost
-- and were made before a number (`claims`), runs that were lost after something may have been sent, and when the first
-- claim from that number on began.
WITH due AS (
    SELECT r.due_at, r.began, r.started_at, r.epoch,
           (SELECT count(*) FROM jsonb_array_elements(r.attempts) AS a
            WHERE a ->> 'outcome' = 'LOST' AND coalesce((a ->> 'sent')::boolean, true)) AS lost,
           (SELECT count(*) FROM jsonb_array_elements(r.attempts) AS a
            WHERE a ->> 'outcome' = 'LOST' AND (a ->> 'epoch')::bigint < %(claims)s) AS refused
    FROM tenants t CROSS JOIN LATERAL (
        SELECT due_at, started_at, epoch, attempts,
               coalesce((attempts -> 0 ->> 'started_at')::timestamptz, started_at) AS began
        FROM runs
        WHERE tenant_id = t.tenant_id AND scheduled_for >= %(since)s - interval '1 day' AND scheduled_for < %(until)s
          AND due_at >= %(since)s AND due_at < %(until)s AND state NOT IN ('CANCELLED', 'SKIPPED')
    ) AS r
    WHERE t.state <> 'MOVED'
)
SELECT count(*), count(began), count(began) FILTER (WHERE lost = 0),
       percentile_cont(ARRAY[0.5, 0.99, 1.0]) WITHIN GROUP (
           ORDER BY greatest(0, extract(epoch FROM began - due_at) * 1000)::float8),
       coalesce(sum(refused), 0)::bigint, count(*) FILTER (WHERE lost > 0),
       min(started_at) FILTER (WHERE epoch >= %(claims)s)
FROM due;

-- name: cell_punctuality_repeated
-- The first of those runs that were lost after something may have been sent: their targets may have heard of them twice.
SELECT t.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, r.state, r.lost
FROM tenants t CROSS JOIN LATERAL (
    SELECT parent_id, scheduled_for, ordinal, state,
           (SELECT count(*) FROM jsonb_array_elements(attempts) AS a
            WHERE a ->> 'outcome' = 'LOST' AND coalesce((a ->> 'sent')::boolean, true)) AS lost
    FROM runs
    WHERE tenant_id = t.tenant_id AND scheduled_for >= %(since)s - interval '1 day' AND scheduled_for < %(until)s
      AND due_at >= %(since)s AND due_at < %(until)s AND state NOT IN ('CANCELLED', 'SKIPPED')
) AS r
WHERE t.state <> 'MOVED' AND r.lost > 0
ORDER BY t.tenant_id, r.scheduled_for, r.parent_id, r.ordinal
LIMIT %(limit)s;
