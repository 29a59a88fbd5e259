-- Executions of a workflow id that follow each other (continued as new, or reset) are one chain. What is said to the
-- workflow is said to its chain: signals are known by the chain that took them (workflow_signals.run_id), and words
-- that reach an execution that goes on in another one are handed on.

ALTER TABLE workflows ADD COLUMN chain uuid;  -- run_id of the first one; null: this is the first

-- Which workflow ids were used, as long as history is kept: written when an execution leaves for the lake. Of each
-- id the latest one that left.
CREATE TABLE workflow_ids_used (
    tenant_id   uuid NOT NULL,
    workflow_id text COLLATE "C" NOT NULL,
    run_id      uuid NOT NULL,
    input_hash  bytea NOT NULL,     -- of the start as it was asked for
    definition  text COLLATE "C" NOT NULL,
    version     integer NOT NULL,
    status      text NOT NULL,
    started_at  timestamptz NOT NULL,
    closed_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, workflow_id)
);
CREATE INDEX workflow_ids_used_age ON workflow_ids_used (closed_at);

-- The id lives longer than the execution that a run began.
ALTER TABLE job_workflows ADD COLUMN workflow_id text COLLATE "C";
UPDATE job_workflows j SET workflow_id = f.workflow_id
FROM workflows f WHERE f.tenant_id = j.tenant_id AND f.run_id = j.run_id;

CREATE OR REPLACE FUNCTION job_workflow_cancelled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)
    SELECT f.tenant_id, f.run_id, f.shard, 'CANCEL', convert_to('{"reason":"its run was cancelled"}', 'UTF8')
    FROM job_workflows j
    JOIN workflows f ON f.tenant_id = j.tenant_id AND f.workflow_id = j.workflow_id AND f.holds_id
    WHERE j.tenant_id = NEW.tenant_id AND j.parent_id = NEW.parent_id AND j.scheduled_for = NEW.scheduled_for
      AND j.ordinal = NEW.ordinal AND j.todo IS NULL;
    RETURN NULL;
END $$;

-- What stops workflows is found whatever else waits.
CREATE INDEX workflow_inbox_stops ON workflow_inbox (position) WHERE kind IN ('CANCEL', 'TERMINATE', 'RESOLVE');
