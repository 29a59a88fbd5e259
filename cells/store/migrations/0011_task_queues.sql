-- Pull workers: tasks wait as READY runs until they are polled, and are held under leases that
-- heartbeats extend.

ALTER TABLE runs ADD COLUMN task_queue   text;                           -- null: a push run
ALTER TABLE runs ADD COLUMN worker       text;                           -- RUNNING: who polled it (pull)
ALTER TABLE runs ADD COLUMN lease_ms     integer;                        -- what a heartbeat extends by
ALTER TABLE runs ADD COLUMN heartbeat_at timestamptz;                    -- the last one of this attempt
ALTER TABLE runs ADD COLUMN at_most_once boolean NOT NULL DEFAULT false; -- its holder's death is UNKNOWN

-- In the order they are handed out.
CREATE INDEX runs_ready ON runs (tenant_id, task_queue, priority, due_at) WHERE state = 'READY';
-- What the workers of a queue hold. Without the lease's end, which every heartbeat moves.
CREATE INDEX runs_pulled ON runs (tenant_id, task_queue) WHERE state = 'RUNNING' AND task_queue IS NOT NULL;

-- A queue is there from its first task or poll on.
CREATE TABLE task_queues (
    tenant_id      uuid NOT NULL,
    task_queue     text NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    last_polled_at timestamptz,              -- by anybody; to about a second
    paused_at      timestamptz,              -- paused: nothing is handed out
    starved_at     timestamptz,              -- people were told that nobody polls
    PRIMARY KEY (tenant_id, task_queue)
);

-- Who polled what, and when last; to about a second.
CREATE TABLE task_workers (
    tenant_id     uuid NOT NULL,
    task_queue    text NOT NULL,
    worker_id     text NOT NULL,
    first_seen_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at  timestamptz NOT NULL DEFAULT now(),
    left_at       timestamptz,               -- it said goodbye
    PRIMARY KEY (tenant_id, task_queue, worker_id)
);
CREATE INDEX task_workers_seen ON task_workers (last_seen_at);
