-- Bulk changes of jobs. A selection freezes which jobs are meant; an operation works through it.

CREATE TABLE selections (
    tenant_id    uuid NOT NULL,
    selection_id uuid NOT NULL,
    action       text NOT NULL CHECK (action IN ('pause', 'resume', 'cancel')),
    filter       bytea NOT NULL,        -- JSON, as it was asked for
    count        integer NOT NULL,
    hash         bytea NOT NULL,        -- SHA-256 of the action and the ids in order
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, selection_id)
);
CREATE INDEX selections_age ON selections (expires_at);

-- The ids, a thousand to a row.
CREATE TABLE selection_chunks (
    tenant_id    uuid NOT NULL,
    selection_id uuid NOT NULL,
    chunk        integer NOT NULL,
    job_ids      uuid[] NOT NULL,
    PRIMARY KEY (tenant_id, selection_id, chunk),
    FOREIGN KEY (tenant_id, selection_id) REFERENCES selections ON DELETE CASCADE
);

-- Each transaction that works on one moves `position` with what it did, so that a worker's death
-- repeats nothing; `next_at` paces all workers together.
CREATE TABLE operations (
    tenant_id      uuid NOT NULL,
    operation_id   uuid NOT NULL,
    selection_id   uuid NOT NULL,
    action         text NOT NULL,
    state          text NOT NULL DEFAULT 'RUNNING' CHECK (state IN ('RUNNING', 'STOPPED', 'DONE')),
    total          integer NOT NULL,
    position       integer NOT NULL DEFAULT 0,
    done           integer NOT NULL DEFAULT 0,
    unchanged      integer NOT NULL DEFAULT 0,
    failed         integer NOT NULL DEFAULT 0,
    reasons        jsonb NOT NULL DEFAULT '{}',  -- why items failed, with counts
    failures       jsonb NOT NULL DEFAULT '[]',  -- the first few: [job id, reason]
    max_per_second integer NOT NULL,
    next_at        timestamptz NOT NULL DEFAULT now(),
    created_by     text NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    finished_at    timestamptz,
    stopped_by     text,
    PRIMARY KEY (tenant_id, operation_id),
    UNIQUE (tenant_id, selection_id),
    FOREIGN KEY (tenant_id, selection_id) REFERENCES selections,
    CHECK (position = done + unchanged + failed),
    CHECK ((finished_at IS NULL) = (state = 'RUNNING'))
);
CREATE INDEX operations_open ON operations (next_at) WHERE state = 'RUNNING';
CREATE INDEX operations_newest ON operations (tenant_id, created_at, operation_id);
