-- The time-zone data that a tenant's waiting instants were computed with; no row: nobody has said. Moves along with the
-- tenant, so that a cell with newer data knows what it got.
CREATE TABLE tenant_tzdata (
    tenant_id uuid PRIMARY KEY,
    version   text NOT NULL
);
INSERT INTO tenant_tzdata (tenant_id, version)
SELECT t.tenant_id, c.tzdata_version FROM tenants t CROSS JOIN cell c
WHERE c.tzdata_version IS NOT NULL AND t.state IN ('ACTIVE', 'SUSPENDED');
