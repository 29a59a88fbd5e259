-- Calendars of excluded dates, backfills, and delays that operators ask for.

-- A job's definition names the version of the calendar it was made with, so a change of a calendar
-- makes new versions of its jobs. `pending` until all have one; `after_*` is how far that is.
CREATE TABLE calendars (
    tenant_id   uuid NOT NULL,
    calendar_id text NOT NULL,
    version     integer NOT NULL,
    name        text,
    created_by  text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    pending     boolean NOT NULL DEFAULT false,
    after_at    timestamptz,
    after_job   uuid,
    moved       integer NOT NULL DEFAULT 0,     -- jobs whose next occurrence changed with this version
    PRIMARY KEY (tenant_id, calendar_id)
);
CREATE INDEX calendars_pending ON calendars (updated_at) WHERE pending;

CREATE TABLE calendar_versions (
    tenant_id   uuid NOT NULL,
    calendar_id text NOT NULL,
    version     integer NOT NULL,
    content     bytea NOT NULL,     -- JSON of cells.scheduling.CalendarContent
    created_by  text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, calendar_id, version)
);
CREATE TRIGGER immutable BEFORE UPDATE ON calendar_versions FOR EACH ROW EXECUTE FUNCTION refuse_update();

-- A stretch of a job's past being run. Whoever holds the row works on it; each transaction moves
-- `cursor_at` with what it did.
CREATE TABLE backfills (
    tenant_id      uuid NOT NULL,
    backfill_id    uuid NOT NULL,
    job_id         uuid NOT NULL,
    from_at        timestamptz NOT NULL,
    until_at       timestamptz NOT NULL,    -- not included
    cursor_at      timestamptz NOT NULL,    -- occurrences before it are dealt with
    state          text NOT NULL DEFAULT 'RUNNING' CHECK (state IN ('RUNNING', 'STOPPED', 'DONE')),
    total          integer NOT NULL,
    started        integer NOT NULL DEFAULT 0,  -- runs it made
    replaced       integer NOT NULL DEFAULT 0,  -- of those: where a SKIPPED row stood
    present        integer NOT NULL DEFAULT 0,  -- occurrences that had a run already
    reason         text,                        -- why it ended before its time
    max_per_second integer NOT NULL,
    next_at        timestamptz NOT NULL DEFAULT now(),
    created_by     text NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    finished_at    timestamptz,
    stopped_by     text,
    PRIMARY KEY (tenant_id, backfill_id),
    CHECK ((finished_at IS NULL) = (state = 'RUNNING'))
);
CREATE INDEX backfills_open ON backfills (next_at) WHERE state = 'RUNNING';
CREATE INDEX backfills_newest ON backfills (tenant_id, created_at, backfill_id);

-- How much later than next_run_at + offset_ms the present occurrence is due because an operator
-- lengthened its window: on purpose, so no misfire. Back to 0 with the next occurrence.
ALTER TABLE jobs ADD COLUMN delay_ms integer NOT NULL DEFAULT 0 CHECK (delay_ms >= 0);

-- Runs of jobs with an overlap policy; the index holds those that have not ended.
ALTER TABLE runs ADD COLUMN guarded boolean NOT NULL DEFAULT false;
CREATE INDEX runs_guarded ON runs (tenant_id, parent_id) WHERE guarded AND finished_at IS NULL;
