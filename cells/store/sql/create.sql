-- name: create_strict_locks
-- Serialises those who use a tenant's strict allowance; in one order for all.
SELECT pg_advisory_xact_lock(hashtextextended('clockhouse.strict.' || tenant_id::text, 0))
FROM (SELECT DISTINCT tenant_id FROM unnest(%(tenants)s::uuid[]) AS s (tenant_id) ORDER BY tenant_id) AS s;

-- name: create_strict_counts
-- Strict jobs of a tenant that are due in some seconds (tenant_id, second), except one job.
SELECT w.i::int, (SELECT count(*) FROM jobs j
                  WHERE j.tenant_id = w.tenant_id AND j.priority = 0 AND j.window_ms = 0
                    AND j.due_at >= w.second AND j.due_at < w.second + interval '1 second'
                    AND j.job_id IS DISTINCT FROM %(but_not)s::uuid)::int
FROM unnest(%(tenants)s::uuid[], %(seconds)s::timestamptz[]) WITH ORDINALITY AS w (tenant_id, second, i);

-- name: create_strict_taken
-- How many strict jobs of a tenant are due in each second of a range; empty seconds are left out.
SELECT date_trunc('second', due_at), count(*)::int FROM jobs
WHERE tenant_id = %(tenant)s AND priority = 0 AND window_ms = 0
  AND due_at >= %(since)s AND due_at < %(until)s
GROUP BY 1;

-- name: create_pending
-- How many jobs and workflows of a tenant wait for a time, counted to a little beyond the limit.
SELECT count(*)::int FROM (
    SELECT FROM jobs WHERE tenant_id = %(tenant)s AND due_at IS NOT NULL
    UNION ALL
    SELECT FROM workflows WHERE tenant_id = %(tenant)s AND (timer_at IS NOT NULL) IS TRUE
    LIMIT %(limit)s
) AS waiting;

-- name: create_known_keys
-- Stored answers for some idempotency keys (tenant_id, route, key).
SELECT w.i::int, k.fingerprint, k.status, k.body
FROM unnest(%(tenants)s::uuid[], %(routes)s::text[], %(keys)s::text[]) WITH ORDINALITY AS w (tenant_id, route, key, i)
JOIN idempotency_keys k USING (tenant_id, route, key);

-- name: create_known_jobs
-- Which of some ids (tenant_id, job) are jobs already.
SELECT w.i::int
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[]) WITH ORDINALITY AS w (tenant_id, job_id, i)
JOIN jobs j USING (tenant_id, job_id);

-- name: create_known_names
-- Which of some keys given by clients (tenant_id, job_key) name a job already.
SELECT w.i::int
FROM unnest(%(tenants)s::uuid[], %(job_keys)s::text[]) WITH ORDINALITY AS w (tenant_id, job_key, i)
WHERE EXISTS (SELECT FROM jobs j WHERE j.tenant_id = w.tenant_id AND j.job_key = w.job_key);

-- name: create_jobs
-- New jobs (tenant_id, job), in the order of their keys.
INSERT INTO jobs (tenant_id, job_id, shard, state, priority, window_ms, offset_ms, next_run_at, due_at, triggers,
                  target_id, name, job_key, region_policy, created_at, updated_at)
SELECT tenant_id, job_id, shard, state, priority, window_ms, offset_ms, next_run_at, due_at, triggers, target_id,
       name, job_key, region_policy, coalesce(created_at, now()), coalesce(created_at, now())
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[], %(shards)s::smallint[], %(states)s::text[], %(priorities)s::smallint[],
            %(windows)s::int[], %(offsets)s::int[], %(nexts)s::timestamptz[], %(dues)s::timestamptz[],
            %(triggers)s::int[], %(targets)s::text[], %(names)s::text[], %(job_keys)s::text[], %(policies)s::text[],
            %(created)s::timestamptz[])
     AS n (tenant_id, job_id, shard, state, priority, window_ms, offset_ms, next_run_at, due_at, triggers, target_id,
           name, job_key, region_policy, created_at);

-- name: create_versions
-- Immutable definitions (tenant_id, job, version).
INSERT INTO job_versions (tenant_id, job_id, version, definition, payload, created_by, created_at, traceparent)
SELECT tenant_id, job_id, version, definition, payload, actor, coalesce(created_at, now()), traceparent
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[], %(versions)s::int[], %(definitions)s::bytea[],
            %(payloads)s::bytea[], %(actors)s::text[], %(created)s::timestamptz[], %(traces)s::text[])
     AS n (tenant_id, job_id, version, definition, payload, actor, created_at, traceparent);

-- name: create_facets
-- Search terms of jobs (tenant_id, facet, job), in the order of their jobs' creation.
INSERT INTO job_facets (tenant_id, facet, job_id, created_at)
SELECT tenant_id, facet, job_id, coalesce(created_at, now())
FROM unnest(%(tenants)s::uuid[], %(facets)s::text[], %(jobs)s::uuid[], %(created)s::timestamptz[])
     AS n (tenant_id, facet, job_id, created_at)
ON CONFLICT DO NOTHING;

-- name: create_keys
-- Answers to be given again (tenant_id, route, key).
INSERT INTO idempotency_keys (tenant_id, route, key, fingerprint, status, body)
SELECT * FROM unnest(%(tenants)s::uuid[], %(routes)s::text[], %(keys)s::text[], %(fingerprints)s::bytea[],
                     %(statuses)s::smallint[], %(bodies)s::bytea[]);
