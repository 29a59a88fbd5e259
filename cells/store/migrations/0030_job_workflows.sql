-- Runs of jobs whose work is a workflow: RUNNING without a host and without an end of their lease, until
-- the workflow is closed. The run, the start and the end are each told to the other side in the transaction
-- that makes them true.

CREATE TABLE job_workflows (
    tenant_id     uuid NOT NULL,
    parent_id     uuid NOT NULL,                -- the run: its job, instant and ordinal
    scheduled_for timestamptz NOT NULL,
    ordinal       integer NOT NULL,
    epoch         bigint NOT NULL,              -- of the run's claim
    todo          text CHECK (todo IN ('START', 'END')),    -- null: the workflow is open
    run_id        uuid,                         -- of the execution that was begun
    status        text,                         -- END: how the workflow ended
    error         text,
    result        bytea,
    at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, parent_id, scheduled_for, ordinal)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX job_workflows_todo ON job_workflows (todo, at) WHERE todo IS NOT NULL;

-- Whoever asks such a run to stop asks its workflow.
CREATE FUNCTION job_workflow_cancelled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)
    SELECT f.tenant_id, f.run_id, f.shard, 'CANCEL', convert_to('{"reason":"its run was cancelled"}', 'UTF8')
    FROM job_workflows j
    JOIN workflows b ON b.tenant_id = j.tenant_id AND b.run_id = j.run_id
    JOIN workflows f ON f.tenant_id = b.tenant_id AND f.workflow_id = b.workflow_id AND f.holds_id
    WHERE j.tenant_id = NEW.tenant_id AND j.parent_id = NEW.parent_id AND j.scheduled_for = NEW.scheduled_for
      AND j.ordinal = NEW.ordinal AND j.todo IS NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER job_workflow_cancelled AFTER UPDATE ON runs FOR EACH ROW
    WHEN (NEW.cancel_requested AND NOT OLD.cancel_requested AND NEW.state = 'RUNNING' AND NEW.host_id IS NULL
          AND NEW.kind = 0)
    EXECUTE FUNCTION job_workflow_cancelled();
