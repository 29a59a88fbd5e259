-- Concurrency keys, callbacks, a tenant-wide pause, and operations over dead letters.

-- RUNNING runs of a key are counted, waiting ones are found oldest first; runs without a key are in
-- neither index. `callback` says which of a job's two notifications a run of kind 2 is.
ALTER TABLE runs
    ADD COLUMN concurrency_key text,
    ADD COLUMN max_concurrent  integer,
    ADD COLUMN callback        text CHECK (callback IN ('on_success', 'on_failure'));
CREATE INDEX runs_key_held ON runs (tenant_id, concurrency_key)
    WHERE concurrency_key IS NOT NULL AND lease_expires_at IS NOT NULL;
CREATE INDEX runs_key_waiting ON runs (tenant_id, concurrency_key, due_at)
    WHERE concurrency_key IS NOT NULL AND timer_at IS NOT NULL;

-- Whether the tenant's own people have stopped everything: a part of its configuration that every
-- claim looks at.
ALTER TABLE tenants
    ADD COLUMN paused boolean GENERATED ALWAYS AS (coalesce((config ->> 'paused')::boolean, false)) STORED;

-- A selection may be of dead letters: `job_ids` are then their parents, and the rest of their keys is
-- beside them. `stages` are the positions at which an operation waits to see how those before did.
ALTER TABLE selections
    DROP CONSTRAINT selections_action_check,
    ADD CONSTRAINT selections_action_check CHECK (action IN ('pause', 'resume', 'cancel', 'redrive', 'purge')),
    ADD COLUMN stages integer[] NOT NULL DEFAULT '{}';
ALTER TABLE selection_chunks
    ADD COLUMN instants timestamptz[],
    ADD COLUMN ordinals integer[],
    ADD COLUMN series   integer[];
ALTER TABLE operations
    ADD COLUMN stages      integer[] NOT NULL DEFAULT '{}',
    ADD COLUMN looked_at   timestamptz NOT NULL DEFAULT now(),    -- for letters that came back
    ADD COLUMN stop_reason text;                                  -- why it stopped by itself

-- Which operation dealt with a letter; null where somebody did it alone.
ALTER TABLE dlq
    ADD COLUMN operation_id uuid,
    ADD COLUMN changed_at   timestamptz,
    ADD COLUMN changed_by   text;
CREATE INDEX dlq_operation ON dlq (tenant_id, operation_id) WHERE operation_id IS NOT NULL;
