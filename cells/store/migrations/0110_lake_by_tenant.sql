-- Which files of the history lake hold executions of a tenant, and when those began: a list of workflows looks at
-- no other file.

CREATE TABLE lake_workflow_tenants (
    tenant_id   uuid NOT NULL,
    name        text NOT NULL REFERENCES lake_workflow_files ON DELETE CASCADE,
    began_from  timestamptz NOT NULL,
    began_until timestamptz NOT NULL,  -- the latest start
    PRIMARY KEY (tenant_id, name)
);
CREATE INDEX lake_workflow_tenants_file ON lake_workflow_tenants (name);

-- Files that were written before this may hold anybody's.
ALTER TABLE lake_workflow_files ADD COLUMN by_tenant boolean NOT NULL DEFAULT false;
CREATE INDEX lake_workflow_files_anybodys ON lake_workflow_files (day) WHERE NOT by_tenant;
