-- Closed workflows leave the database after a while, with their events, once both are in the history lake.

CREATE INDEX workflows_closed ON workflows (closed_at) WHERE closed_at IS NOT NULL;

-- Files of the lake that hold executions with their events, by the day in UTC on which they were closed.
CREATE TABLE lake_workflow_files (
    name   text PRIMARY KEY,
    day    date NOT NULL,
    rows   bigint NOT NULL,
    bytes  bigint NOT NULL,
    sha256 bytea NOT NULL
);
CREATE INDEX lake_workflow_files_day ON lake_workflow_files (day);

-- What ends for a workflow that has left is told to nobody.
CREATE OR REPLACE FUNCTION activity_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)
    SELECT NEW.tenant_id, NEW.parent_id, NEW.shard, 'ACTIVITY', convert_to(jsonb_build_object(
        'ordinal', NEW.ordinal, 'state', NEW.state, 'reason', NEW.reason, 'attempts', NEW.attempts)::text, 'UTF8')
    WHERE EXISTS (SELECT FROM workflows f WHERE f.tenant_id = NEW.tenant_id AND f.run_id = NEW.parent_id);
    RETURN NULL;
END $$;
