-- name: cell
-- A cell's row.
SELECT cell, region, epoch, renewals, promotions FROM cell_ownership WHERE cell = %(cell)s;

-- name: first_cell
-- The first claim of a cell; no row if somebody was before us.
WITH raised AS (UPDATE epoch_counter SET value = value + 1 RETURNING value)
INSERT INTO cell_ownership (cell, region, epoch)
SELECT %(cell)s, %(region)s, value FROM raised
ON CONFLICT (cell) DO NOTHING
RETURNING cell, region, epoch, renewals, promotions;

-- name: claim_cell
-- A takeover or handover: only on top of the epoch that was seen, and of the renewals if they were.
WITH raised AS (UPDATE epoch_counter SET value = value + 1 RETURNING value)
UPDATE cell_ownership c
SET region = %(region)s, epoch = raised.value, renewals = 0, promotions = promotions + 1, claimed_at = now()
FROM raised
WHERE c.cell = %(cell)s AND c.epoch = %(expected)s AND c.renewals = coalesce(%(renewals)s::bigint, c.renewals)
RETURNING c.cell, c.region, c.epoch, c.renewals, c.promotions;

-- name: renew_cell
-- The owner lives.
UPDATE cell_ownership SET renewals = renewals + 1
WHERE cell = %(cell)s AND region = %(region)s AND epoch = %(epoch)s
RETURNING cell, region, epoch, renewals, promotions;

-- name: promotions
-- Every promotion of a cell that was begun, by timeline.
SELECT timeline, epoch, region, parent, fork_lsn::text FROM cell_promotions WHERE cell = %(cell)s ORDER BY timeline;

-- name: promotion_first
-- A promotion that is about to be; no row if its number is another's.
INSERT INTO cell_promotions AS p (cell, timeline, epoch, region, parent, fork_lsn)
VALUES (%(cell)s, %(timeline)s, %(epoch)s, %(region)s, %(parent)s, %(fork)s)
ON CONFLICT (cell, timeline) DO UPDATE SET parent = excluded.parent, fork_lsn = excluded.fork_lsn
WHERE p.epoch = excluded.epoch AND p.region = excluded.region
RETURNING timeline;

-- name: vote_cast
-- A region's vote; the first one stands.
INSERT INTO cell_votes (cell, epoch, region, place) VALUES (%(cell)s, %(epoch)s, %(region)s, %(place)s)
ON CONFLICT (cell, epoch, region) DO NOTHING;

-- name: votes
-- The votes for a takeover.
SELECT region, place FROM cell_votes WHERE cell = %(cell)s AND epoch = %(epoch)s ORDER BY region;

-- name: tenant
-- A tenant's row.
SELECT tenant_id, cell, epoch FROM tenant_ownership WHERE tenant_id = %(tenant_id)s;

-- name: first_tenant
-- The first placement of a tenant; no row if somebody was before us.
WITH raised AS (UPDATE epoch_counter SET value = value + 1 RETURNING value)
INSERT INTO tenant_ownership (tenant_id, cell, epoch)
SELECT %(tenant_id)s, %(cell)s, value FROM raised
ON CONFLICT (tenant_id) DO NOTHING
RETURNING tenant_id, cell, epoch;

-- name: claim_tenant
-- Another placement: only on top of the epoch that was seen.
WITH raised AS (UPDATE epoch_counter SET value = value + 1 RETURNING value)
UPDATE tenant_ownership t
SET cell = %(cell)s, epoch = raised.value, claimed_at = now()
FROM raised
WHERE t.tenant_id = %(tenant_id)s AND t.epoch = %(expected)s
RETURNING t.tenant_id, t.cell, t.epoch;

-- name: tenants_of
-- A cell's tenants, a page at a time.
SELECT tenant_id, cell, epoch FROM tenant_ownership
WHERE cell = %(cell)s AND (%(after)s::uuid IS NULL OR tenant_id > %(after)s::uuid)
ORDER BY tenant_id
LIMIT %(limit)s;

-- name: release_tenant
-- A tenant that is gone for good.
DELETE FROM tenant_ownership WHERE tenant_id = %(tenant_id)s AND epoch = %(expected)s RETURNING tenant_id;
