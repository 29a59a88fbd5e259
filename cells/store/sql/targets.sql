-- name: target_create
-- A new target (tenant_id, target); fails where the id is taken.
INSERT INTO targets (tenant_id, target_id, state, base_url, owner_team, description, max_concurrency, initial_concurrency,
                     latency_slo_ms, auth, settings, created_by, approved_by, approved_at)
VALUES (%(tenant)s, %(target)s, %(state)s, %(base_url)s, %(owner_team)s, %(description)s, %(max_concurrency)s,
        %(initial_concurrency)s, %(latency_slo_ms)s, %(auth)s::jsonb, %(settings)s::jsonb, %(created_by)s,
        %(approved_by)s, %(approved_at)s)
RETURNING tenant_id, target_id, state, version, base_url, owner_team, description, max_concurrency, initial_concurrency,
          latency_slo_ms, auth::text, settings::text, created_by, created_at, updated_at, approved_by, approved_at;

-- name: target_get
-- One target (tenant_id, target).
SELECT tenant_id, target_id, state, version, base_url, owner_team, description, max_concurrency, initial_concurrency,
       latency_slo_ms, auth::text, settings::text, created_by, created_at, updated_at, approved_by, approved_at
FROM targets WHERE tenant_id = %(tenant)s AND target_id = %(target)s;

-- name: target_list
-- A page of a tenant's targets by id.
SELECT tenant_id, target_id, state, version, base_url, owner_team, description, max_concurrency, initial_concurrency,
       latency_slo_ms, auth::text, settings::text, created_by, created_at, updated_at, approved_by, approved_at
FROM targets
WHERE tenant_id = %(tenant)s AND target_id > coalesce(%(after)s::text, '')
  AND (%(state)s::text IS NULL OR state = %(state)s)
ORDER BY target_id LIMIT %(limit)s;

-- name: target_update
-- Changes a target (tenant_id, target) that still is at the version that was read.
UPDATE targets SET version = version + 1, state = %(state)s, base_url = %(base_url)s, owner_team = %(owner_team)s,
    description = %(description)s, max_concurrency = %(max_concurrency)s, initial_concurrency = %(initial_concurrency)s,
    latency_slo_ms = %(latency_slo_ms)s, auth = %(auth)s::jsonb, settings = %(settings)s::jsonb,
    approved_by = %(approved_by)s, approved_at = %(approved_at)s, updated_at = now()
WHERE tenant_id = %(tenant)s AND target_id = %(target)s AND version = %(base)s
RETURNING tenant_id, target_id, state, version, base_url, owner_team, description, max_concurrency, initial_concurrency,
          latency_slo_ms, auth::text, settings::text, created_by, created_at, updated_at, approved_by, approved_at;

-- name: target_lock
-- A target (tenant_id, target) for whoever is about to change it.
SELECT version, state FROM targets WHERE tenant_id = %(tenant)s AND target_id = %(target)s FOR UPDATE;

-- name: target_users
-- Whether a job that may still run names a target (tenant_id, target).
SELECT EXISTS (
    SELECT FROM job_facets f JOIN jobs j USING (tenant_id, job_id)
    WHERE f.tenant_id = %(tenant)s AND f.facet = 'target:' || %(target)s AND j.state IN ('ACTIVE', 'PAUSED'));

-- name: target_delete
-- Deletes a target with its secrets (tenant_id, target).
DELETE FROM targets WHERE tenant_id = %(tenant)s AND target_id = %(target)s;

-- name: target_touch
-- A new version of a target (tenant_id, target) whose secrets changed.
UPDATE targets SET version = version + 1, updated_at = now()
WHERE tenant_id = %(tenant)s AND target_id = %(target)s
RETURNING tenant_id, target_id, state, version, base_url, owner_team, description, max_concurrency, initial_concurrency,
          latency_slo_ms, auth::text, settings::text, created_by, created_at, updated_at, approved_by, approved_at;

-- name: target_by_url
-- The approved target with the longest base_url that a url lies under (tenant_id, url).
SELECT tenant_id, target_id, state, version, base_url, owner_team, description, max_concurrency, initial_concurrency,
       latency_slo_ms, auth::text, settings::text, created_by, created_at, updated_at, approved_by, approved_at
FROM targets
WHERE tenant_id = %(tenant)s AND state = 'APPROVED'
  AND (%(url)s = base_url OR starts_with(%(url)s, rtrim(base_url, '/') || '/') OR starts_with(%(url)s, base_url || '?'))
ORDER BY length(base_url) DESC, target_id LIMIT 1;

-- name: secret_put
-- One generation of a secret (tenant_id, target, purpose, generation).
INSERT INTO target_secrets (tenant_id, target_id, generation, purpose, sealed, expires_at)
VALUES (%(tenant)s, %(target)s, %(generation)s, %(purpose)s, %(sealed)s, %(expires_at)s);

-- name: secret_next
-- The generation that follows a purpose's newest one (tenant_id, target, purpose).
SELECT coalesce(max(generation), 0) + 1 FROM target_secrets
WHERE tenant_id = %(tenant)s AND target_id = %(target)s AND purpose = %(purpose)s;

-- name: secret_expire
-- The generations before the new one live on for the overlap (tenant_id, target, purpose).
UPDATE target_secrets SET expires_at = least(expires_at, now() + make_interval(secs => %(overlap)s))
WHERE tenant_id = %(tenant)s AND target_id = %(target)s AND purpose = %(purpose)s
  AND (expires_at IS NULL OR expires_at > now());

-- name: secret_list
-- Live secrets of a target, newest first (tenant_id, target).
SELECT generation, purpose, sealed, created_at, expires_at FROM target_secrets
WHERE tenant_id = %(tenant)s AND target_id = %(target)s AND (expires_at IS NULL OR expires_at > now())
ORDER BY generation DESC, purpose DESC;

-- name: call_targets
-- Some targets (tenant_id, target), by position in the request.
SELECT w.i::int, t.tenant_id, t.target_id, state, version, base_url, owner_team, description, max_concurrency,
       initial_concurrency, latency_slo_ms, auth::text, settings::text, created_by, created_at, updated_at, approved_by,
       approved_at
FROM unnest(%(tenants)s::uuid[], %(targets)s::text[]) WITH ORDINALITY AS w (tenant_id, target_id, i)
JOIN targets t ON t.tenant_id = w.tenant_id AND t.target_id = w.target_id
ORDER BY w.i;

-- name: call_secrets
-- Their live secrets, newest first (tenant_id, target).
SELECT w.i::int, s.generation, s.purpose, s.sealed, s.created_at, s.expires_at
FROM unnest(%(tenants)s::uuid[], %(targets)s::text[]) WITH ORDINALITY AS w (tenant_id, target_id, i)
JOIN target_secrets s ON s.tenant_id = w.tenant_id AND s.target_id = w.target_id
WHERE s.expires_at IS NULL OR s.expires_at > now()
ORDER BY w.i, s.generation DESC, s.purpose DESC;
