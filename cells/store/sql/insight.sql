-- name: fold_target_stats
-- Adds folded calls to their targets' minutes (tenant_id, target, minute).
INSERT INTO target_stats AS s (tenant_id, target_id, minute, succeeded, failed, retried, ms_sum, ms_max, ms_le)
SELECT tenant_id, target_id, minute, succeeded, failed, retried, ms_sum, ms_max, string_to_array(ms_le, ',')::bigint[]
FROM unnest(%(tenants)s::uuid[], %(targets)s::text[], %(minutes)s::timestamptz[], %(succeeded)s::bigint[],
            %(failed)s::bigint[], %(retried)s::bigint[], %(sums)s::bigint[], %(maxima)s::bigint[], %(les)s::text[])
     AS n (tenant_id, target_id, minute, succeeded, failed, retried, ms_sum, ms_max, ms_le)
ON CONFLICT (tenant_id, target_id, minute) DO UPDATE SET
    succeeded = s.succeeded + excluded.succeeded,
    failed = s.failed + excluded.failed,
    retried = s.retried + excluded.retried,
    ms_sum = s.ms_sum + excluded.ms_sum,
    ms_max = greatest(s.ms_max, excluded.ms_max),
    ms_le = (SELECT array_agg(a + b ORDER BY i) FROM unnest(s.ms_le, excluded.ms_le) WITH ORDINALITY AS u (a, b, i));

-- name: target_stats_read
-- A target's minutes in a range (tenant_id, target).
SELECT minute, succeeded, failed, retried, ms_sum, ms_max, ms_le
FROM target_stats
WHERE tenant_id = %(tenant)s AND target_id = %(target)s AND minute >= %(since)s AND minute < %(until)s
ORDER BY minute;

-- name: target_in_flight
-- Calls to a target that are under way now (tenant_id, target), counted to a bound.
SELECT count(*)::int
FROM hosts h CROSS JOIN LATERAL (
    SELECT FROM runs r
    WHERE r.host_id = h.host_id AND r.lease_expires_at > clock_timestamp() - interval '10 seconds'
      AND r.state = 'RUNNING' AND r.tenant_id = %(tenant)s AND r.target_id = %(target)s
    ORDER BY r.lease_expires_at LIMIT 10000
) AS held
WHERE h.state = 'LIVE';

-- name: job_stats_read
-- A job's occurrences by the minute they were scheduled for (tenant_id, job), the newest at most; the
-- row without a minute is all of them together.
SELECT date_trunc('minute', scheduled_for, 'UTC') AS minute,
       count(*) FILTER (WHERE state <> 'SKIPPED' AND claimed_at IS NOT NULL)::bigint,
       count(*) FILTER (WHERE state IN ('SUCCEEDED', 'SUCCEEDED_AFTER_CANCEL'))::bigint,
       count(*) FILTER (WHERE state IN ('FAILED', 'UNKNOWN'))::bigint,
       coalesce(sum(jsonb_array_length(attempts) - 1) FILTER (WHERE jsonb_array_length(attempts) > 1), 0)::bigint,
       count(*) FILTER (WHERE state = 'CANCELLED')::bigint,
       coalesce(sum(skipped), 0)::bigint,
       percentile_disc(0.5) WITHIN GROUP (ORDER BY lag_ms)::float8,
       percentile_disc(0.99) WITHIN GROUP (ORDER BY lag_ms)::float8,
       max(lag_ms)::bigint, avg(lag_ms)::float8,
       percentile_disc(0.5) WITHIN GROUP (ORDER BY call_ms)::float8,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY call_ms)::float8,
       max(call_ms)::bigint
FROM (SELECT scheduled_for, state, claimed_at, attempts, skipped,
             CASE WHEN attempt = 1 THEN greatest(date_part('epoch', started_at - due_at) * 1000, 0) END AS lag_ms,
             greatest(date_part('epoch', finished_at - started_at) * 1000, 0) AS call_ms
      FROM runs
      WHERE tenant_id = %(tenant)s AND parent_id = %(job)s AND kind <> 2
        AND scheduled_for >= %(since)s AND scheduled_for < %(until)s
      ORDER BY scheduled_for DESC LIMIT %(most)s) AS r
GROUP BY GROUPING SETS ((date_trunc('minute', scheduled_for, 'UTC')), ())
ORDER BY 1 NULLS LAST;

-- name: dlq_get
-- The dead letters of one run (tenant_id, parent, instant, ordinal), its latest series first.
SELECT parent_id, scheduled_for, ordinal, series, fingerprint, reason, target_id, http_status, error, attempt, failed_at,
       state
FROM dlq
WHERE tenant_id = %(tenant)s AND parent_id = %(parent)s AND scheduled_for = %(at)s AND ordinal = %(ordinal)s
ORDER BY series DESC;
