-- name: selection_freeze
-- The ids of the jobs a filter finds now (tenant_id), in the states an action can change, newest
-- first and at most a few more than allowed; with their count and the hash that names exactly them.
WITH found AS (
    SELECT id AS job_id FROM unnest(%(ids)s::uuid[]) AS id WHERE %(ids)s::uuid[] IS NOT NULL
    UNION ALL
    SELECT f.job_id FROM job_facets f
    WHERE f.tenant_id = %(tenant)s AND f.facet = %(facet)s
      AND %(ids)s::uuid[] IS NULL AND %(facet)s::text IS NOT NULL
    UNION ALL
    SELECT a.job_id FROM jobs a
    WHERE a.tenant_id = %(tenant)s AND %(ids)s::uuid[] IS NULL AND %(facet)s::text IS NULL
),
chosen AS (
    SELECT j.job_id, j.created_at
    FROM (SELECT DISTINCT job_id FROM found) AS d
    CROSS JOIN LATERAL (  -- one probe for each, whatever the planner thinks of the size of it all
        SELECT job_id, created_at FROM jobs
        WHERE tenant_id = %(tenant)s AND job_id = d.job_id AND state = ANY(%(states)s::text[])
          AND (%(due_from)s::timestamptz IS NULL OR due_at >= %(due_from)s)
          AND (%(due_until)s::timestamptz IS NULL OR due_at < %(due_until)s)
        LIMIT 1) AS j
    WHERE (%(facet)s::text IS NULL OR %(ids)s::uuid[] IS NULL OR EXISTS (
           SELECT FROM job_facets o WHERE o.tenant_id = %(tenant)s AND o.facet = %(facet)s
           AND o.created_at = j.created_at AND o.job_id = j.job_id))
      AND (%(other)s::text IS NULL OR EXISTS (
           SELECT FROM job_facets o WHERE o.tenant_id = %(tenant)s AND o.facet = %(other)s
           AND o.created_at = j.created_at AND o.job_id = j.job_id))
      AND (%(name_from)s::text IS NULL OR EXISTS (
           SELECT FROM (SELECT facet FROM job_facets WHERE tenant_id = %(tenant)s AND job_id = j.job_id OFFSET 0) AS n
           WHERE n.facet >= %(name_from)s AND n.facet < %(name_until)s))
    LIMIT %(limit)s
),
numbered AS MATERIALIZED (
    SELECT job_id, row_number() OVER (ORDER BY created_at DESC, job_id DESC) - 1 AS n FROM chosen
),
kept AS (
    INSERT INTO selection_chunks (tenant_id, selection_id, chunk, job_ids)
    SELECT %(tenant)s, %(selection)s, (n / 1000)::int, array_agg(job_id ORDER BY n) FROM numbered GROUP BY n / 1000
)
INSERT INTO selections (tenant_id, selection_id, action, filter, count, hash, created_by, expires_at)
SELECT %(tenant)s, %(selection)s, %(action)s, %(filter)s, count(*)::int,
       sha256(convert_to(%(action)s, 'UTF8') || coalesce(string_agg(uuid_send(job_id), ''::bytea ORDER BY n), ''::bytea)),
       %(actor)s, %(expires)s
FROM numbered
RETURNING selection_id, action, filter, count, hash, created_by, created_at, expires_at;

-- name: selection_count_open
-- Selections of a tenant (tenant_id) that can still be applied and have not been, counted to a bound.
SELECT count(*)::int FROM (
    SELECT FROM selections s
    WHERE s.tenant_id = %(tenant)s AND s.expires_at > now()
      AND NOT EXISTS (SELECT FROM operations o WHERE o.tenant_id = s.tenant_id AND o.selection_id = s.selection_id)
    LIMIT %(most)s) AS open;

-- name: selection_get
-- One selection (tenant_id, selection).
SELECT selection_id, action, filter, count, hash, created_by, created_at, expires_at
FROM selections WHERE tenant_id = %(tenant)s AND selection_id = %(selection)s;

-- name: selection_sample
-- The first few jobs of a selection (tenant_id, selection) as they are now.
SELECT j.job_id, shard, state, version, window_ms, offset_ms, next_run_at, due_at, definition, payload, created_at, updated_at
FROM selection_chunks c
CROSS JOIN LATERAL unnest(c.job_ids[1:%(size)s]) WITH ORDINALITY AS s (job_id, n)
JOIN job_rows j ON j.tenant_id = c.tenant_id AND j.job_id = s.job_id
WHERE c.tenant_id = %(tenant)s AND c.selection_id = %(selection)s AND c.chunk = 0
ORDER BY s.n;

-- name: operation_start
-- RUNNING over a selection (tenant_id, selection); nothing where there is one already.
INSERT INTO operations (tenant_id, operation_id, selection_id, action, total, max_per_second, created_by, stages)
SELECT tenant_id, %(operation)s, selection_id, action, count, %(rate)s, %(actor)s, stages
FROM selections WHERE tenant_id = %(tenant)s AND selection_id = %(selection)s
ON CONFLICT (tenant_id, selection_id) DO NOTHING;

-- name: operation_of
-- The operation over a selection (tenant_id, selection).
SELECT operation_id, selection_id, action, state, total, position, done, unchanged, failed, reasons::text, failures::text,
       max_per_second, created_by, created_at, finished_at, stopped_by, stages, stop_reason
FROM operations WHERE tenant_id = %(tenant)s AND selection_id = %(selection)s;

-- name: operation_get
-- One operation (tenant_id, operation).
SELECT operation_id, selection_id, action, state, total, position, done, unchanged, failed, reasons::text, failures::text,
       max_per_second, created_by, created_at, finished_at, stopped_by, stages, stop_reason
FROM operations WHERE tenant_id = %(tenant)s AND operation_id = %(operation)s;

-- name: operation_list
-- A page of a tenant's operations of some kinds, newest first.
SELECT operation_id, selection_id, action, state, total, position, done, unchanged, failed, reasons::text, failures::text,
       max_per_second, created_by, created_at, finished_at, stopped_by, stages, stop_reason
FROM operations
WHERE tenant_id = %(tenant)s AND action = ANY(%(actions)s::text[])
  AND (%(state)s::text IS NULL OR state = %(state)s)
  AND (created_at, operation_id) < (coalesce(%(after_at)s::timestamptz, 'infinity'),
                                    coalesce(%(after_id)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
ORDER BY created_at DESC, operation_id DESC LIMIT %(limit)s;

-- name: operation_stop
-- RUNNING to STOPPED (tenant_id, operation): what is done stays done.
UPDATE operations SET state = 'STOPPED', finished_at = clock_timestamp(), stopped_by = %(actor)s
WHERE tenant_id = %(tenant)s AND operation_id = %(operation)s AND state = 'RUNNING';

-- name: operation_next
-- Locks one operation whose turn has come (any tenant_id that is active here); passes over those
-- that somebody else works on.
SELECT o.tenant_id, t.ownership_epoch, t.config::text, o.operation_id, o.selection_id, o.action, o.position, o.total,
       o.max_per_second, o.created_by, o.stages, o.looked_at
FROM operations o JOIN tenants t ON t.tenant_id = o.tenant_id AND t.state = 'ACTIVE'
WHERE o.state = 'RUNNING' AND o.next_at <= clock_timestamp()
ORDER BY o.next_at LIMIT 1
FOR UPDATE OF o SKIP LOCKED;

-- name: operation_slice
-- The next ids of a selection (tenant_id, selection) from a position on.
SELECT job_ids[%(first)s:%(last)s] FROM selection_chunks
WHERE tenant_id = %(tenant)s AND selection_id = %(selection)s AND chunk = %(chunk)s;

-- name: operation_advance
-- What was done with a slice (tenant_id, operation), in the transaction that did it.
UPDATE operations SET
    position = position + %(done)s + %(unchanged)s + %(failed)s,
    done = done + %(done)s, unchanged = unchanged + %(unchanged)s, failed = failed + %(failed)s,
    reasons = reasons || (SELECT coalesce(jsonb_object_agg(key, value::int + coalesce((reasons ->> key)::int, 0)), '{}')
                          FROM jsonb_each_text(%(reasons)s::jsonb)),
    failures = CASE WHEN jsonb_array_length(failures) < 20 THEN failures || %(failures)s::jsonb ELSE failures END,
    next_at = greatest(next_at, clock_timestamp() - interval '1 second')
              + (%(done)s + %(unchanged)s + %(failed)s) * interval '1 second' / max_per_second,
    looked_at = clock_timestamp(),
    state = CASE WHEN position + %(done)s + %(unchanged)s + %(failed)s >= total THEN 'DONE' ELSE state END,
    finished_at = CASE WHEN position + %(done)s + %(unchanged)s + %(failed)s >= total THEN clock_timestamp() END
WHERE tenant_id = %(tenant)s AND operation_id = %(operation)s
RETURNING operation_id, selection_id, action, state, total, position, done, unchanged, failed, reasons::text,
          failures::text, max_per_second, created_by, created_at, finished_at, stopped_by, stages, stop_reason;
