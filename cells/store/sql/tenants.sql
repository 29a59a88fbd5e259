-- name: tenant_put
-- What the control plane says; an older configuration or epoch never overwrites a newer one. While a move holds
-- the tenant, and where it has moved away, its state and epoch are the move's. One that was erased stays so.
INSERT INTO tenants AS t (tenant_id, state, ownership_epoch, config_version, config, told_state)
SELECT %(tenant)s, %(state)s, %(epoch)s, %(config_version)s, %(config)s::jsonb, %(state)s
WHERE NOT EXISTS (SELECT FROM erased_tenants WHERE tenant_id = %(tenant)s)
ON CONFLICT (tenant_id) DO UPDATE SET
    state = CASE WHEN t.move_id IS NULL OR t.state IN ('ACTIVE', 'SUSPENDED') THEN excluded.state ELSE t.state END,
    ownership_epoch = CASE WHEN t.move_id IS NULL OR t.state IN ('ACTIVE', 'SUSPENDED') THEN excluded.ownership_epoch
                           ELSE t.ownership_epoch END,
    told_state = excluded.state, config_version = excluded.config_version, config = excluded.config, updated_at = now()
WHERE excluded.ownership_epoch >= t.ownership_epoch AND excluded.config_version >= t.config_version
  AND (excluded.ownership_epoch, excluded.config_version, excluded.state, excluded.config)
      IS DISTINCT FROM (t.ownership_epoch, t.config_version, t.told_state, t.config)
RETURNING config_version;

-- name: tenant_get
-- One tenant. Its configuration as it counts here, and as it was said where that is more.
SELECT tenant_id, state, ownership_epoch, config_version, config::text,
       CASE WHEN config ? 'whole' THEN ((config || (config -> 'whole')) - 'whole')::text END
FROM tenants WHERE tenant_id = %(tenant)s;

-- name: tenant_list
-- All tenants this cell has heard of, by tenant_id. Their configurations as they count here, and as they were
-- said where that is more.
SELECT tenant_id, state, ownership_epoch, config_version, config::text,
       CASE WHEN config ? 'whole' THEN ((config || (config -> 'whole')) - 'whole')::text END
FROM tenants ORDER BY tenant_id;

-- name: tenant_fence
-- Whether the tenant is placed here, active, under this epoch. First statement of a transaction
-- that writes for one tenant; sealing waits for every transaction that saw it pass.
SELECT config::text FROM tenants
WHERE tenant_id = %(tenant)s AND state = 'ACTIVE' AND ownership_epoch = %(epoch)s;

-- name: tenant_fences
-- Epoch and configuration of the active ones among some tenants.
SELECT tenant_id, ownership_epoch, config::text FROM tenants
WHERE tenant_id = ANY(%(tenants)s::uuid[]) AND state = 'ACTIVE';
