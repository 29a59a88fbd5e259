-- name: local_stores_of
-- Which local stores hold rows of a tenant (tenant_id), and whether each has its latest snapshot from this owner.
SELECT s.store, s.wanted, s.told = s.wanted AND s.told_epoch = c.epoch
FROM local_stores s CROSS JOIN cell c WHERE s.tenant_id = %(tenant)s ORDER BY s.store;

-- name: local_store_use
-- From here on a local store may hold rows of a tenant (tenant_id, store), and has its part of the quotas. Not while a
-- move holds the tenant.
INSERT INTO local_stores (tenant_id, store)
SELECT t.tenant_id, %(store)s::smallint FROM tenants t WHERE t.tenant_id = %(tenant)s AND t.move_id IS NULL
FOR NO KEY UPDATE
ON CONFLICT (tenant_id, store) DO UPDATE SET store = excluded.store
RETURNING store;

-- name: local_stores_among
-- Which local stores hold rows of some tenants (tenant_id).
SELECT tenant_id, store FROM local_stores WHERE tenant_id = ANY(%(tenants)s::uuid[]) ORDER BY tenant_id, store;

-- name: cell_local_stores_unknown
-- Those of some tenants (tenant_id) that live here and whose rows in a local store are not known of.
SELECT t.tenant_id FROM tenants t
WHERE t.tenant_id = ANY(%(tenants)s::uuid[]) AND t.state IN ('ACTIVE', 'SUSPENDED')
  AND NOT EXISTS (SELECT FROM local_stores s WHERE s.tenant_id = t.tenant_id AND s.store = %(store)s);

-- name: cell_local_stores_settle
-- Transactions that changed something of a tenant before its row was here have ended: tell it once more.
UPDATE local_stores SET wanted = wanted + 1, settled = true
WHERE NOT settled AND since < now() - make_interval(secs => %(longest)s)
RETURNING tenant_id;

-- name: cell_local_stores_behind
-- Tenants whose snapshot somewhere is not the latest of this owner (tenant_id, store), of each store so many: one that
-- is away keeps nobody from the others. Not those that are put off.
SELECT b.tenant_id, b.store FROM (
    SELECT s.tenant_id, s.store, row_number() OVER (PARTITION BY s.store ORDER BY s.since, s.tenant_id) AS n
    FROM local_stores s CROSS JOIN cell c
    WHERE (s.told <> s.wanted OR s.told_epoch <> c.epoch) AND NOT EXISTS (
        SELECT FROM unnest(%(tenants)s::uuid[], %(stores)s::smallint[]) AS o(tenant_id, store)
        WHERE o.tenant_id = s.tenant_id AND o.store = s.store)) AS b
WHERE b.n <= %(limit)s ORDER BY b.n, b.store;

-- name: local_store_told
-- A local store has a tenant's snapshot (tenant_id, store) of that version, from the owner under that epoch.
UPDATE local_stores SET told = greatest(CASE WHEN told_epoch = %(epoch)s THEN told ELSE 0 END, %(version)s),
                        told_epoch = %(epoch)s
WHERE tenant_id = %(tenant)s AND store = %(store)s AND told_epoch <= %(epoch)s;

-- name: snapshot_of
-- What a local store has to know of a tenant (tenant_id, store), as one text: rows as they are here.
SELECT jsonb_build_object(
    'epoch', c.epoch, 'version', s.wanted,
    'state', t.state, 'ownership_epoch', t.ownership_epoch, 'config_version', t.config_version,
    'config', (t.config || coalesce(t.config -> 'whole', '{}')) - 'whole',
    'targets', (SELECT coalesce(jsonb_agg(to_jsonb(x) ORDER BY x.target_id), '[]') FROM targets x
                WHERE x.tenant_id = s.tenant_id),
    'secrets', (SELECT coalesce(jsonb_agg(to_jsonb(x) ORDER BY x.target_id, x.purpose, x.generation), '[]')
                FROM target_secrets x WHERE x.tenant_id = s.tenant_id),
    'definitions', (SELECT coalesce(jsonb_agg(to_jsonb(x) ORDER BY x.name, x.version), '[]')
                    FROM workflow_definitions x WHERE x.tenant_id = s.tenant_id),
    'calendars', (SELECT coalesce(jsonb_agg(to_jsonb(v) || jsonb_build_object('name', x.name) ORDER BY x.calendar_id), '[]')
                  FROM calendars x JOIN calendar_versions v USING (tenant_id, calendar_id, version)
                  WHERE x.tenant_id = s.tenant_id),
    'erased', EXISTS (SELECT FROM erased_tenants e WHERE e.tenant_id = s.tenant_id))::text
FROM local_stores s JOIN tenants t USING (tenant_id) CROSS JOIN cell c
WHERE s.tenant_id = %(tenant)s AND s.store = %(store)s;

-- name: cell_snapshots
-- A page of the tenants (tenant_id) that this local store has a snapshot of.
SELECT tenant_id FROM snapshots WHERE tenant_id > %(after)s ORDER BY tenant_id LIMIT %(limit)s;

-- name: snapshot_begin
-- Takes a tenant's snapshot (tenant_id) unless a later one is known or it was erased here, and keeps others out until it is whole.
INSERT INTO snapshots AS s (tenant_id, epoch, version)
SELECT %(tenant)s, %(epoch)s, %(version)s WHERE NOT EXISTS (SELECT FROM erased_tenants WHERE tenant_id = %(tenant)s)
ON CONFLICT (tenant_id) DO UPDATE SET epoch = excluded.epoch, version = excluded.version, taken_at = now()
WHERE (excluded.epoch, excluded.version) > (s.epoch, s.version)
RETURNING version;

-- name: snapshot_tenant
-- The tenant (tenant_id) as its owner knows it. Its epoch stays what it was here at first: this store has one owner.
-- One that was halted to be erased stays so.
INSERT INTO tenants AS t (tenant_id, state, ownership_epoch, config_version, config, told_state)
VALUES (%(tenant)s, %(state)s, %(ownership_epoch)s, %(config_version)s, %(config)s::jsonb, %(state)s)
ON CONFLICT (tenant_id) DO UPDATE SET
    state = CASE WHEN t.state = 'MOVED' THEN t.state ELSE excluded.state END, told_state = excluded.state,
    config_version = excluded.config_version, config = excluded.config, updated_at = now();

-- name: snapshot_targets_gone
-- Deletes targets (tenant_id) that are not among the snapshot's; what still waits for one fails as if it was deleted here.
DELETE FROM targets WHERE tenant_id = %(tenant)s
AND target_id NOT IN (SELECT x.target_id FROM jsonb_populate_recordset(NULL::targets, %(rows)s::jsonb) AS x);

-- name: snapshot_targets
-- Targets (tenant_id) as the snapshot has them.
INSERT INTO targets SELECT x.* FROM jsonb_populate_recordset(NULL::targets, %(rows)s::jsonb) AS x
WHERE x.tenant_id = %(tenant)s
ON CONFLICT (tenant_id, target_id) DO UPDATE SET
    state = excluded.state, version = excluded.version, base_url = excluded.base_url, owner_team = excluded.owner_team,
    description = excluded.description, max_concurrency = excluded.max_concurrency,
    initial_concurrency = excluded.initial_concurrency, latency_slo_ms = excluded.latency_slo_ms, auth = excluded.auth,
    settings = excluded.settings, created_by = excluded.created_by, created_at = excluded.created_at,
    updated_at = excluded.updated_at, approved_by = excluded.approved_by, approved_at = excluded.approved_at;

-- name: snapshot_secrets_gone
-- Deletes secrets (tenant_id) that are not among the snapshot's.
DELETE FROM target_secrets s WHERE s.tenant_id = %(tenant)s
AND NOT EXISTS (SELECT FROM jsonb_populate_recordset(NULL::target_secrets, %(rows)s::jsonb) AS x
                WHERE (x.target_id, x.purpose, x.generation) = (s.target_id, s.purpose, s.generation));

-- name: snapshot_secrets
-- Secrets (tenant_id) as the snapshot has them, sealed as they are.
INSERT INTO target_secrets SELECT x.* FROM jsonb_populate_recordset(NULL::target_secrets, %(rows)s::jsonb) AS x
WHERE x.tenant_id = %(tenant)s
ON CONFLICT (tenant_id, target_id, purpose, generation) DO UPDATE SET
    sealed = excluded.sealed, expires_at = excluded.expires_at;

-- name: snapshot_definitions
-- Definitions (tenant_id) that are new. None ever changes.
INSERT INTO workflow_definitions
SELECT x.* FROM jsonb_populate_recordset(NULL::workflow_definitions, %(rows)s::jsonb) AS x
WHERE x.tenant_id = %(tenant)s
ON CONFLICT DO NOTHING;

-- name: snapshot_calendars
-- The calendars (tenant_id) that are known here.
SELECT calendar_id FROM calendars WHERE tenant_id = %(tenant)s;

-- name: strict_rows
-- What of a tenant (tenant_id) another region has to confirm, and lives: jobs, workflows.
SELECT (SELECT count(*) FROM jobs
        WHERE tenant_id = %(tenant)s AND region_policy = 'STRICT' AND state IN ('ACTIVE', 'PAUSED')),
       (SELECT count(*) FROM workflows
        WHERE tenant_id = %(tenant)s AND region_policy = 'STRICT' AND closed_at IS NULL);

-- name: local_rows
-- Whether this store holds anything of a tenant (tenant_id) that lives: jobs, workflows, runs that have not ended.
SELECT (SELECT count(*) FROM jobs WHERE tenant_id = %(tenant)s),
       (SELECT count(*) FROM workflows WHERE tenant_id = %(tenant)s);
