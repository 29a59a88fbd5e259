-- Tenants that nothing is done for here. Few: a look for work passes over theirs without reading the others.
CREATE INDEX tenants_away ON tenants (tenant_id) WHERE state <> 'ACTIVE';
