-- One cell's tables. Every primary key starts with tenant_id, so that a tenant's rows can be
-- found, checked and moved without anybody else's. States mirror cells/domain.

-- This cell's own ownership: one row. A PERMANENT owner has no lease (lease_until is null).
CREATE TABLE cell (
    singleton      boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    name           text NOT NULL,
    epoch          bigint NOT NULL DEFAULT 1 CHECK (epoch > 0),
    lease_until    timestamptz,
    sealed_until   timestamptz NOT NULL DEFAULT date_trunc('minute', now()),
    tzdata_version text
);

-- What the control plane has told us about tenants placed here. The row decides whether
-- anything may be written for the tenant: ACTIVE and the epoch still the same.
CREATE TABLE tenants (
    tenant_id       uuid PRIMARY KEY,
    state           text NOT NULL CHECK (state IN ('ACTIVE', 'BARRIER', 'SEALED', 'MOVED', 'SUSPENDED')),
    ownership_epoch bigint NOT NULL CHECK (ownership_epoch > 0),
    config_version  bigint NOT NULL,
    config          jsonb NOT NULL,       -- quotas and defaults, see ports.TenantConfig
    updated_at      timestamptz NOT NULL DEFAULT now()
);

-- One row per process start. A lapsed lease makes all its push runs and shards reclaimable.
CREATE TABLE hosts (
    host_id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name             text NOT NULL,       -- unique per process start: <hostname>-<pid>-<random>
    roles            text[] NOT NULL,
    started_at       timestamptz NOT NULL DEFAULT now(),
    lease_expires_at timestamptz NOT NULL,
    state            text NOT NULL DEFAULT 'LIVE' CHECK (state IN ('LIVE', 'GONE'))
);
CREATE INDEX hosts_live ON hosts (lease_expires_at) WHERE state = 'LIVE';

-- Which host releases a shard's members. Alive as long as its host's lease is.
CREATE TABLE shard_leases (
    shard   smallint PRIMARY KEY CHECK (shard BETWEEN 0 AND 255),
    host_id bigint,
    epoch   bigint NOT NULL DEFAULT 0
);
INSERT INTO shard_leases (shard) SELECT generate_series(0, 255);

CREATE TABLE targets (
    tenant_id           uuid NOT NULL,
    target_id           text NOT NULL,
    state               text NOT NULL CHECK (state IN ('PENDING', 'APPROVED', 'DISABLED', 'GONE')),
    version             integer NOT NULL DEFAULT 1,
    base_url            text NOT NULL,
    owner_team          text,
    description         text,
    max_concurrency     integer NOT NULL,
    initial_concurrency integer NOT NULL,
    latency_slo_ms      integer NOT NULL,
    auth                jsonb NOT NULL,   -- type and what is not secret (secret_arn, user name)
    settings            jsonb NOT NULL DEFAULT '{}',
    created_by          text NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    approved_by         text,
    approved_at         timestamptz,
    PRIMARY KEY (tenant_id, target_id)
);

-- Sealed with the installation key, bound to tenant and target. Rotation keeps the older
-- generation until it expires; calls are signed with every live one.
CREATE TABLE target_secrets (
    tenant_id  uuid NOT NULL,
    target_id  text NOT NULL,
    generation integer NOT NULL,
    purpose    text NOT NULL CHECK (purpose IN ('SIGNING', 'CREDENTIAL')),
    sealed     bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    PRIMARY KEY (tenant_id, target_id, purpose, generation),
    FOREIGN KEY (tenant_id, target_id) REFERENCES targets ON DELETE CASCADE
);

-- The hot row of a job: its next timer. due_at is set exactly while the job waits.
-- Few indexes on purpose: each occurrence rewrites this row.
CREATE TABLE jobs (
    tenant_id     uuid NOT NULL,
    job_id        uuid NOT NULL,
    shard         smallint NOT NULL,
    state         text NOT NULL CHECK (state IN ('ACTIVE', 'PAUSED', 'CANCELLED', 'DONE')),
    version       integer NOT NULL DEFAULT 1,     -- of the definition; also the ETag
    priority      smallint NOT NULL CHECK (priority BETWEEN 0 AND 3),
    window_ms     integer NOT NULL CHECK (window_ms >= 0),
    offset_ms     integer NOT NULL CHECK (offset_ms >= 0),
    next_run_at   timestamptz,                    -- scheduled instant, whole seconds
    due_at        timestamptz,                    -- next_run_at + offset; the timer
    triggers      integer NOT NULL DEFAULT 0,     -- ordinals given to runs by hand
    target_id     text NOT NULL,
    name          text,
    job_key       text,
    region_policy text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, job_id),
    CHECK ((due_at IS NOT NULL) = (state = 'ACTIVE')),
    CHECK (due_at IS NULL OR due_at >= next_run_at)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX jobs_due ON jobs (shard, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX jobs_tenant_due ON jobs (tenant_id, due_at, job_id) WHERE due_at IS NOT NULL;
CREATE UNIQUE INDEX jobs_key ON jobs (tenant_id, job_key) WHERE job_key IS NOT NULL;

-- Search terms of a job (`tag:x`, `name:x`, `target:x`); written when it is created or edited,
-- so that an occurrence does not pay for them.
CREATE TABLE job_facets (
    tenant_id uuid NOT NULL,
    facet     text COLLATE "C" NOT NULL,
    job_id    uuid NOT NULL,
    PRIMARY KEY (tenant_id, facet, job_id)
);
CREATE INDEX job_facets_job ON job_facets (tenant_id, job_id);

-- Immutable. A run refers to the version it was claimed with.
CREATE TABLE job_versions (
    tenant_id  uuid NOT NULL,
    job_id     uuid NOT NULL,
    version    integer NOT NULL,
    definition bytea NOT NULL,     -- JSON of cells.domain.job.JobDefinition
    payload    bytea,              -- the request body as it will be sent; null is `{}`
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    PRIMARY KEY (tenant_id, job_id, version)
);

-- One row per occurrence, run by hand or workflow step. A row never changes partition.
CREATE TABLE runs (
    tenant_id        uuid NOT NULL,
    parent_id        uuid NOT NULL,             -- the job or workflow run
    scheduled_for    timestamptz NOT NULL,      -- whole seconds
    ordinal          integer NOT NULL DEFAULT 0,
    kind             smallint NOT NULL DEFAULT 0,
    state            text NOT NULL CHECK (state IN ('DUE', 'READY', 'RUNNING', 'RETRY_WAIT', 'SUCCEEDED',
                     'FAILED', 'CANCELLED', 'SUCCEEDED_AFTER_CANCEL', 'UNKNOWN', 'SKIPPED')),
    shard            smallint NOT NULL,
    priority         smallint NOT NULL,
    version          integer NOT NULL,          -- job version it runs
    epoch            bigint NOT NULL DEFAULT 0,
    series           integer NOT NULL DEFAULT 1,    -- attempt series; a redrive starts the next
    attempt          integer NOT NULL DEFAULT 0,    -- attempts begun in this series
    deaths           smallint NOT NULL DEFAULT 0,   -- executors that died with it
    timer_at         timestamptz,               -- DUE, RETRY_WAIT: when to claim it
    host_id          bigint,                    -- RUNNING: the claimer (push)
    lease_expires_at timestamptz,               -- RUNNING
    due_at           timestamptz NOT NULL,      -- with window; never changes
    released_at      timestamptz,               -- past the quota, into the queue (last attempt)
    claimed_at       timestamptz,               -- last attempt
    started_at       timestamptz,               -- last attempt: got its slot at the target
    finished_at      timestamptz,               -- set in terminal states
    cancel_requested boolean NOT NULL DEFAULT false,
    target_id        text,
    http_status      smallint,                  -- of the last attempt
    reason           text,                      -- why SKIPPED, FAILED, UNKNOWN
    skipped          integer NOT NULL DEFAULT 0,    -- SKIPPED: occurrences this row stands for
    input            bytea,                     -- payload given by hand; null: the version's
    progress         jsonb,
    attempts         jsonb NOT NULL DEFAULT '[]',
    traceparent      text,
    PRIMARY KEY (tenant_id, parent_id, scheduled_for, ordinal),
    CHECK ((timer_at IS NOT NULL) = (state IN ('DUE', 'RETRY_WAIT'))),
    CHECK ((lease_expires_at IS NOT NULL) = (state = 'RUNNING')),
    CHECK ((finished_at IS NOT NULL) = (state IN ('SUCCEEDED', 'FAILED', 'CANCELLED',
            'SUCCEEDED_AFTER_CANCEL', 'UNKNOWN', 'SKIPPED')))
) PARTITION BY RANGE (scheduled_for);
CREATE INDEX runs_timer ON runs (shard, timer_at) WHERE timer_at IS NOT NULL;
CREATE INDEX runs_lease ON runs (host_id, lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX runs_by_time ON runs (tenant_id, scheduled_for, parent_id, ordinal);
CREATE TABLE runs_default PARTITION OF runs DEFAULT WITH (fillfactor = 80);

CREATE TABLE dlq (
    tenant_id     uuid NOT NULL,
    parent_id     uuid NOT NULL,
    scheduled_for timestamptz NOT NULL,
    ordinal       integer NOT NULL,
    series        integer NOT NULL,
    state         text NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'REDRIVEN', 'PURGED')),
    fingerprint   text NOT NULL,        -- target, status, normalised error
    reason        text NOT NULL,        -- FAILED, UNKNOWN, POISON
    target_id     text,
    http_status   smallint,
    error         text,
    attempt       integer NOT NULL,
    failed_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, parent_id, scheduled_for, ordinal, series)
);
CREATE INDEX dlq_open ON dlq (tenant_id, failed_at, parent_id, scheduled_for, ordinal) WHERE state = 'OPEN';

CREATE TABLE idempotency_keys (
    tenant_id   uuid NOT NULL,
    route       text NOT NULL,          -- method and path
    key         text NOT NULL,
    fingerprint bytea NOT NULL,         -- SHA-256 of the request body
    status      smallint NOT NULL,
    body        bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, route, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- The cell's stream: one row per committing transaction (see store/README.md for `body`).
-- Read with a commit-safe cursor: rows whose xid is below pg_snapshot_xmin are final.
CREATE TABLE journal (
    at      timestamptz NOT NULL DEFAULT transaction_timestamp(),
    host_id bigint NOT NULL,
    seq     bigint NOT NULL,
    epoch   bigint NOT NULL,            -- of the cell
    xid     xid8 NOT NULL DEFAULT pg_current_xact_id(),
    body    bytea NOT NULL,             -- JSON of ports.JournalBody
    PRIMARY KEY (at, host_id, seq)
) PARTITION BY RANGE (at);
CREATE TABLE journal_default PARTITION OF journal DEFAULT;
CREATE INDEX journal_xid ON journal (xid);

-- Cursors of those who read the journal.
CREATE TABLE journal_readers (
    name text PRIMARY KEY,
    xid  xid8 NOT NULL,
    at   timestamptz NOT NULL DEFAULT now()
);

-- Sealed minutes, kept until shipped and a while longer.
CREATE TABLE meter_minutes (
    tenant_id     uuid NOT NULL,
    store         smallint NOT NULL,
    epoch         bigint NOT NULL,
    host          text NOT NULL,
    minute        timestamptz NOT NULL,
    metric        text NOT NULL,
    region_policy text NOT NULL,
    quantity      bigint NOT NULL CHECK (quantity >= 0),
    shipped_at    timestamptz,
    refused       text,             -- the receiver's reason; needs an operator
    PRIMARY KEY (tenant_id, store, epoch, host, minute, metric, region_policy)
);
CREATE INDEX meter_minutes_unshipped ON meter_minutes (minute) WHERE shipped_at IS NULL AND refused IS NULL;

-- Per tenant and minute, folded from the journal; the pages read these, never `runs`.
-- lag_le[i] counts first attempts that started within LAG_BOUNDS_MS[i] of their due time.
CREATE TABLE run_stats (
    tenant_id  uuid NOT NULL,
    minute     timestamptz NOT NULL,
    started    bigint NOT NULL DEFAULT 0,
    succeeded  bigint NOT NULL DEFAULT 0,
    failed     bigint NOT NULL DEFAULT 0,
    retried    bigint NOT NULL DEFAULT 0,
    cancelled  bigint NOT NULL DEFAULT 0,
    skipped    bigint NOT NULL DEFAULT 0,
    lag_sum_ms bigint NOT NULL DEFAULT 0,
    lag_max_ms bigint NOT NULL DEFAULT 0,
    lag_le     bigint[] NOT NULL,
    PRIMARY KEY (tenant_id, minute)
);
