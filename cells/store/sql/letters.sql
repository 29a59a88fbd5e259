-- name: letters_freeze
-- The open dead letters a filter finds now (tenant_id), with their count and the hash that names
-- exactly them. The first of each fingerprint stand in front, then ten more of each, then the rest
-- from the oldest on: `stages` are where the first two of these groups end.
WITH found AS (
    SELECT d.parent_id, d.scheduled_for, d.ordinal, d.series, d.fingerprint, d.failed_at, d.target_id, d.reason
    FROM unnest(%(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[])
         AS w (parent_id, scheduled_for, ordinal)
    JOIN dlq d ON d.tenant_id = %(tenant)s AND d.parent_id = w.parent_id
              AND d.scheduled_for = w.scheduled_for AND d.ordinal = w.ordinal AND d.state = 'OPEN'
    WHERE %(named)s
    UNION
    SELECT d.parent_id, d.scheduled_for, d.ordinal, d.series, d.fingerprint, d.failed_at, d.target_id, d.reason
    FROM dlq d WHERE d.tenant_id = %(tenant)s AND d.state = 'OPEN' AND NOT %(named)s
),
chosen AS (
    SELECT * FROM found
    WHERE (%(target)s::text IS NULL OR target_id = %(target)s)
      AND (%(fingerprint)s::text IS NULL OR fingerprint = %(fingerprint)s)
      AND (%(job)s::uuid IS NULL OR parent_id = %(job)s)
      AND (%(reason)s::text IS NULL OR reason = %(reason)s)
      AND (%(failed_from)s::timestamptz IS NULL OR failed_at >= %(failed_from)s)
      AND (%(failed_until)s::timestamptz IS NULL OR failed_at < %(failed_until)s)
    LIMIT %(limit)s
),
ranked AS (
    SELECT *, row_number() OVER (PARTITION BY fingerprint ORDER BY failed_at, parent_id, scheduled_for, ordinal) AS r
    FROM chosen
),
numbered AS MATERIALIZED (
    SELECT *, row_number() OVER (ORDER BY least(r, 12) > 1, least(r, 12) > 11, failed_at, parent_id, scheduled_for,
                                 ordinal) - 1 AS n
    FROM ranked
),
kept AS (
    INSERT INTO selection_chunks (tenant_id, selection_id, chunk, job_ids, instants, ordinals, series)
    SELECT %(tenant)s, %(selection)s, (n / 1000)::int, array_agg(parent_id ORDER BY n),
           array_agg(scheduled_for ORDER BY n), array_agg(ordinal ORDER BY n), array_agg(series ORDER BY n)
    FROM numbered GROUP BY n / 1000
)
INSERT INTO selections (tenant_id, selection_id, action, filter, count, hash, created_by, expires_at, stages)
SELECT %(tenant)s, %(selection)s, %(action)s, %(filter)s, count(*)::int,
       sha256(convert_to(%(action)s, 'UTF8')
              || coalesce(string_agg(uuid_send(parent_id) || int8send(date_part('epoch', scheduled_for)::bigint)
                                     || int4send(ordinal) || int4send(series), ''::bytea ORDER BY n), ''::bytea)),
       %(actor)s, %(expires)s,
       CASE WHEN %(action)s = 'redrive'
            THEN ARRAY[count(*) FILTER (WHERE r = 1)::int, count(*) FILTER (WHERE r <= 11)::int]
            ELSE ARRAY[]::int[] END
FROM numbered
RETURNING selection_id, action, filter, count, hash, created_by, created_at, expires_at;

-- name: letters_sample
-- The first few letters of a selection (tenant_id, selection) as they are now.
SELECT d.parent_id, d.scheduled_for, d.ordinal, d.series, d.fingerprint, d.reason, d.target_id, d.http_status, d.error,
       d.attempt, d.failed_at
FROM selection_chunks c
CROSS JOIN LATERAL unnest(c.job_ids[1:%(size)s], c.instants[1:%(size)s], c.ordinals[1:%(size)s], c.series[1:%(size)s])
     WITH ORDINALITY AS s (parent_id, scheduled_for, ordinal, series, n)
JOIN dlq d ON d.tenant_id = c.tenant_id AND d.parent_id = s.parent_id AND d.scheduled_for = s.scheduled_for
          AND d.ordinal = s.ordinal AND d.series = s.series
WHERE c.tenant_id = %(tenant)s AND c.selection_id = %(selection)s AND c.chunk = 0
ORDER BY s.n;

-- name: letters_slice
-- The next letters of a selection (tenant_id, selection) from a position on.
SELECT job_ids[%(first)s:%(last)s], instants[%(first)s:%(last)s], ordinals[%(first)s:%(last)s], series[%(first)s:%(last)s]
FROM selection_chunks
WHERE tenant_id = %(tenant)s AND selection_id = %(selection)s AND chunk = %(chunk)s;

-- name: letters_redrive
-- FAILED and UNKNOWN to DUE: letters (tenant_id, parent, instant, ordinal, series) that are open begin
-- a new series of attempts, under their own key and the version they had. What somebody else took is
-- left out; and activities of workflows that are closed, unless they undo: nobody would undo what they do.
WITH revived AS (
    UPDATE runs r
    SET state = 'DUE', series = r.series + 1, attempt = 0, deaths = 0, timer_at = clock_timestamp(), finished_at = NULL,
        reason = NULL, cancel_requested = false
    FROM unnest(%(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[], %(series)s::int[])
         WITH ORDINALITY AS w (parent_id, scheduled_for, ordinal, series, i)
    JOIN dlq o ON o.tenant_id = %(tenant)s AND o.parent_id = w.parent_id AND o.scheduled_for = w.scheduled_for
              AND o.ordinal = w.ordinal AND o.series = w.series AND o.state = 'OPEN'
    WHERE r.tenant_id = %(tenant)s AND r.parent_id = w.parent_id AND r.scheduled_for = w.scheduled_for
      AND r.ordinal = w.ordinal AND r.series = w.series AND r.state IN ('FAILED', 'UNKNOWN')
      AND (r.kind <> 1 OR convert_from(r.spec, 'UTF8') ~ '"forward_key":"[^"]'
           -- A value, not EXISTS: that would be answered from a hash of all workflows that are open.
           OR (SELECT f.closed_at IS NULL FROM workflows f
               WHERE f.tenant_id = r.tenant_id AND f.run_id = r.parent_id))
    RETURNING w.i, r.parent_id, r.scheduled_for, r.ordinal, r.series, r.priority, r.shard, r.timer_at
)
UPDATE dlq d
SET state = 'REDRIVEN', operation_id = %(operation)s::uuid, changed_at = clock_timestamp(), changed_by = %(actor)s
FROM revived v
WHERE d.tenant_id = %(tenant)s AND d.parent_id = v.parent_id AND d.scheduled_for = v.scheduled_for
  AND d.ordinal = v.ordinal AND d.series = v.series - 1
RETURNING v.i::int, v.parent_id, v.scheduled_for, v.ordinal, v.series, v.priority, v.shard, v.timer_at;

-- name: letters_purge
-- OPEN to PURGED (tenant_id, parent, instant, ordinal, series): the letters are done with, their runs stay
-- as they ended.
UPDATE dlq d
SET state = 'PURGED', operation_id = %(operation)s::uuid, changed_at = clock_timestamp(), changed_by = %(actor)s
FROM unnest(%(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[], %(series)s::int[])
     WITH ORDINALITY AS w (parent_id, scheduled_for, ordinal, series, i)
WHERE d.tenant_id = %(tenant)s AND d.parent_id = w.parent_id AND d.scheduled_for = w.scheduled_for
  AND d.ordinal = w.ordinal AND d.series = w.series AND d.state = 'OPEN'
RETURNING w.i::int;

-- name: letters_states
-- What became of letters (tenant_id, parent, instant, ordinal, series), and of their runs; and whether those are
-- activities of a workflow that is closed.
SELECT w.i::int, d.state, r.state,
       coalesce(r.kind = 1 AND convert_from(r.spec, 'UTF8') !~ '"forward_key":"[^"]'
                AND (SELECT f.closed_at IS NULL FROM workflows f
                     WHERE f.tenant_id = r.tenant_id AND f.run_id = r.parent_id) IS NOT TRUE, false)
FROM unnest(%(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[], %(series)s::int[])
     WITH ORDINALITY AS w (parent_id, scheduled_for, ordinal, series, i)
LEFT JOIN dlq d ON d.tenant_id = %(tenant)s AND d.parent_id = w.parent_id AND d.scheduled_for = w.scheduled_for
               AND d.ordinal = w.ordinal AND d.series = w.series
LEFT JOIN runs r ON r.tenant_id = %(tenant)s AND r.parent_id = w.parent_id AND r.scheduled_for = w.scheduled_for
                AND r.ordinal = w.ordinal;

-- name: letters_canaries
-- How the runs do that an operation (tenant_id, operation) has redriven so far, with how each failed
-- before: while they are few.
SELECT d.fingerprint, d.target_id, r.state, r.attempt, r.attempts -> -1 ->> 'status', r.attempts -> -1 ->> 'error'
FROM dlq d
JOIN runs r ON r.tenant_id = d.tenant_id AND r.parent_id = d.parent_id AND r.scheduled_for = d.scheduled_for
           AND r.ordinal = d.ordinal AND r.series = d.series + 1
WHERE d.tenant_id = %(tenant)s AND d.operation_id = %(operation)s;

-- name: letters_returned
-- One letter that failed since a moment exactly as it had before this operation (tenant_id, operation)
-- redrove it, if there is any.
SELECT n.fingerprint, n.target_id, n.http_status, n.error
FROM dlq n
JOIN dlq d ON d.tenant_id = n.tenant_id AND d.parent_id = n.parent_id AND d.scheduled_for = n.scheduled_for
          AND d.ordinal = n.ordinal AND d.series = n.series - 1
WHERE n.tenant_id = %(tenant)s AND n.state = 'OPEN' AND n.failed_at >= %(since)s
  AND d.operation_id = %(operation)s AND d.fingerprint = n.fingerprint
LIMIT 1;

-- name: letters_outcomes
-- What became of the letters that an operation (tenant_id, operation) redrove: how many of their runs
-- are in each state, of the first ten thousand.
SELECT state, count(*)::int FROM (
    SELECT r.state
    FROM dlq d
    JOIN runs r ON r.tenant_id = d.tenant_id AND r.parent_id = d.parent_id AND r.scheduled_for = d.scheduled_for
               AND r.ordinal = d.ordinal
    WHERE d.tenant_id = %(tenant)s AND d.operation_id = %(operation)s AND d.state = 'REDRIVEN'
    LIMIT 10000) AS o
GROUP BY state;

-- name: letter_open
-- The open letter of a run (tenant_id, parent, instant, ordinal), if it has one.
SELECT series FROM dlq
WHERE tenant_id = %(tenant)s AND parent_id = %(parent)s AND scheduled_for = %(at)s AND ordinal = %(ordinal)s
  AND state = 'OPEN'
ORDER BY series DESC LIMIT 1;

-- name: operation_wait
-- Its turn comes again a little later (tenant_id, operation).
UPDATE operations SET next_at = clock_timestamp() + %(wait_ms)s * interval '1 millisecond', looked_at = clock_timestamp()
WHERE tenant_id = %(tenant)s AND operation_id = %(operation)s
RETURNING operation_id, selection_id, action, state, total, position, done, unchanged, failed, reasons::text,
          failures::text, max_per_second, created_by, created_at, finished_at, stopped_by, stages, stop_reason;

-- name: operation_halt
-- RUNNING to STOPPED by itself (tenant_id, operation), with the reason.
UPDATE operations SET state = 'STOPPED', finished_at = clock_timestamp(), stop_reason = %(reason)s
WHERE tenant_id = %(tenant)s AND operation_id = %(operation)s
RETURNING operation_id, selection_id, action, state, total, position, done, unchanged, failed, reasons::text,
          failures::text, max_per_second, created_by, created_at, finished_at, stopped_by, stages, stop_reason;
