-- name: gauge_take
-- The minute that this transaction's journal row will be dated into, taken by the first who asks for it.
UPDATE meter_state g SET gauged_at = m.minute
FROM (SELECT date_trunc('minute', greatest(transaction_timestamp(), sealed_until), 'UTC') AS minute FROM cell) AS m
WHERE g.gauged_at < m.minute
RETURNING m.minute;

-- name: gauge_dated
-- Whether this transaction's row was dated into the minute that was taken: it may have been closed since.
SELECT date_trunc('minute', at, 'UTC') = %(minute)s FROM journal WHERE xid = pg_current_xact_id();

-- name: gauge_timers
-- Timers that wait now, per tenant_id and region policy. The usual policy is what the others leave of a
-- tenant's whole count, so that no row is looked at: along two indexes a million take a tenth of a second.
SELECT tenant_id, region_policy, sum(n)::bigint FROM (
    SELECT tenant_id, 'HOME_ASYNC' AS region_policy, count(*) AS n FROM jobs WHERE due_at IS NOT NULL GROUP BY 1
    UNION ALL
    SELECT o.tenant_id, p.region_policy, sum(p.sign * o.n)
    FROM (SELECT tenant_id, region_policy, count(*) AS n FROM jobs
          WHERE due_at IS NOT NULL AND region_policy <> 'HOME_ASYNC' GROUP BY 1, 2) AS o
    CROSS JOIN LATERAL (VALUES (o.region_policy, 1), ('HOME_ASYNC', -1)) AS p (region_policy, sign) GROUP BY 1, 2
    UNION ALL
    SELECT r.tenant_id, coalesce(j.region_policy, 'HOME_ASYNC'), count(*)
    FROM runs r LEFT JOIN jobs j ON j.tenant_id = r.tenant_id AND j.job_id = r.parent_id
    WHERE r.timer_at IS NOT NULL GROUP BY 1, 2
) AS waiting
-- A tenant that has moved away, or is still on its way here, is counted by the cell it lives in.
WHERE NOT EXISTS (SELECT FROM tenants t WHERE t.tenant_id = waiting.tenant_id AND t.state = 'MOVED')
GROUP BY 1, 2 HAVING sum(n) > 0;

-- name: gauge_stored
-- Bytes stored per tenant_id and region policy, as last added up.
SELECT tenant_id, region_policy, bytes FROM meter_stored m
WHERE bytes > 0 AND NOT EXISTS (SELECT FROM tenants t WHERE t.tenant_id = m.tenant_id AND t.state = 'MOVED');

-- name: stored_due
-- Whether it is time to add up what is stored, and nobody else is at it.
SELECT clock_timestamp() >= (SELECT stored_next FROM meter_state) AND pg_try_advisory_xact_lock(hashtext('clockhouse.stored'));

-- name: stored_patience
-- Every job is looked at once, in the order in which they lie.
SELECT set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true),
       set_config('statement_timeout', '60s', true), set_config('transaction_timeout', '90s', true);

-- name: stored_count
-- Adds up what each tenant_id stores: definitions and payloads of jobs, histories of workflows.
INSERT INTO meter_stored AS m (tenant_id, region_policy, bytes)
SELECT tenant_id, region_policy, sum(bytes)::bigint FROM (
    SELECT v.tenant_id, j.region_policy, sum(octet_length(v.definition) + coalesce(octet_length(v.payload), 0)) AS bytes
    FROM job_versions v JOIN jobs j ON j.tenant_id = v.tenant_id AND j.job_id = v.job_id GROUP BY 1, 2
    UNION ALL
    SELECT tenant_id, region_policy, sum(history_bytes) FROM workflows GROUP BY 1, 2
    UNION ALL
    SELECT tenant_id, region_policy, 0 FROM meter_stored
) AS stored GROUP BY 1, 2
ON CONFLICT (tenant_id, region_policy) DO UPDATE SET bytes = excluded.bytes WHERE m.bytes <> excluded.bytes;

-- name: stored_done
-- The next time: soon where it was quick, so that it never takes more than a thousandth of the time.
UPDATE meter_state
SET stored_next = clock_timestamp() + greatest(interval '30 seconds', 1000 * (clock_timestamp() - statement_timestamp()),
                                               1000 * (clock_timestamp() - transaction_timestamp()));
