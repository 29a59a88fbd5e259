-- Durable workflows: what they are defined by, where each execution stands, what is recorded of it,
-- and what waits to be recorded. States mirror cells/domain/workflow/execution.py.

-- Immutable, as the text somebody registered.
CREATE TABLE workflow_definitions (
    tenant_id  uuid NOT NULL,
    name       text COLLATE "C" NOT NULL,
    version    integer NOT NULL CHECK (version > 0),
    source     text NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, name, version)
);
CREATE TRIGGER immutable BEFORE UPDATE ON workflow_definitions FOR EACH ROW EXECUTE FUNCTION refuse_update();

-- The state pointer of an execution. Whoever appends events moves next_seq, under the lock of this row.
-- What waits has neither decide_at nor anything but its earliest timer, and costs nothing.
CREATE TABLE workflows (
    tenant_id     uuid NOT NULL,
    run_id        uuid NOT NULL,
    workflow_id   text COLLATE "C" NOT NULL,
    shard         smallint NOT NULL,
    status        text NOT NULL CHECK (status IN ('RUNNING', 'COMPENSATING', 'COMPENSATION_STUCK', 'COMPLETED',
                  'COMPENSATED', 'FAILED', 'CANCELLED', 'TERMINATED', 'CONTINUED_AS_NEW')),
    holds_id      boolean NOT NULL,             -- nobody else may use the workflow id meanwhile
    definition    text COLLATE "C" NOT NULL,
    version       integer NOT NULL,
    input_hash    bytea NOT NULL,               -- of the start as it was asked for
    region_policy text NOT NULL,
    next_seq      integer NOT NULL CHECK (next_seq > 1),
    epoch         bigint NOT NULL,              -- ownership epoch of the last append
    takeovers     jsonb NOT NULL DEFAULT '[]',  -- [[epoch, its first sequence], …]
    decide_at     timestamptz,
    timer_at      timestamptz,                  -- its earliest timer
    history_bytes bigint NOT NULL,
    parent        jsonb,                        -- {run_id, step} of a child; {job…} where a job started it
    started_at    timestamptz NOT NULL,
    closed_at     timestamptz,
    result        bytea,                        -- JSON, cut
    error         text,                         -- cut
    PRIMARY KEY (tenant_id, run_id),
    CHECK ((closed_at IS NULL) = (status IN ('RUNNING', 'COMPENSATING', 'COMPENSATION_STUCK')))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX workflows_holder ON workflows (tenant_id, workflow_id) WHERE holds_id;
CREATE INDEX workflows_by_id ON workflows (tenant_id, workflow_id, started_at);
CREATE INDEX workflows_by_start ON workflows (tenant_id, started_at, run_id);
CREATE INDEX workflows_decide ON workflows (decide_at) WHERE decide_at IS NOT NULL;
CREATE INDEX workflows_timer ON workflows (timer_at) WHERE timer_at IS NOT NULL;

-- Histories. One writer at a time; a sequence is used once.
CREATE TABLE workflow_events (
    tenant_id uuid NOT NULL,
    run_id    uuid NOT NULL,
    seq       integer NOT NULL,
    epoch     bigint NOT NULL,
    type      text NOT NULL,
    at        timestamptz NOT NULL,
    data      bytea NOT NULL,                   -- JSON object
    PRIMARY KEY (tenant_id, run_id, seq)
);
CREATE TRIGGER immutable BEFORE UPDATE ON workflow_events FOR EACH ROW EXECUTE FUNCTION refuse_update();

-- What waits to be recorded. Written by many, without the lock of the execution.
CREATE TABLE workflow_inbox (
    tenant_id uuid NOT NULL,
    run_id    uuid NOT NULL,
    position  bigint GENERATED ALWAYS AS IDENTITY,
    shard     smallint NOT NULL,
    kind      text NOT NULL CHECK (kind IN ('ACTIVITY', 'SIGNAL', 'CHILD', 'CANCEL', 'TERMINATE', 'RESOLVE')),
    data      bytea NOT NULL,                   -- JSON object
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, run_id, position)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX workflow_inbox_first ON workflow_inbox (position);

-- Signals that were taken, whoever owns the tenant meanwhile.
CREATE TABLE workflow_signals (
    tenant_id    uuid NOT NULL,
    workflow_id  text COLLATE "C" NOT NULL,
    signal_id    text COLLATE "C" NOT NULL,
    name         text NOT NULL,
    payload_hash bytea NOT NULL,
    run_id       uuid NOT NULL,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, workflow_id, signal_id)
);

-- A run that is no occurrence brings its own definition (JSON of cells.domain.job.JobDefinition).
ALTER TABLE runs ADD COLUMN spec bytea;

-- However an activity ends (its worker, the executor, the reaper, a cancel), its workflow hears of it in
-- the same transaction.
CREATE FUNCTION activity_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)
    VALUES (NEW.tenant_id, NEW.parent_id, NEW.shard, 'ACTIVITY', convert_to(jsonb_build_object(
        'ordinal', NEW.ordinal, 'state', NEW.state, 'reason', NEW.reason, 'attempts', NEW.attempts)::text, 'UTF8'));
    RETURN NULL;
END $$;
CREATE TRIGGER activity_ended AFTER UPDATE ON runs FOR EACH ROW
    WHEN (NEW.kind = 1 AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL)
    EXECUTE FUNCTION activity_ended();
