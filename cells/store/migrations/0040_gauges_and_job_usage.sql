-- What is metered as a level, not as an event, and runs by job and day.

-- How far each counter has come. One row.
CREATE TABLE meter_state (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    gauged_at   timestamptz NOT NULL,   -- the newest minute whose gauges are counted
    stored_next timestamptz NOT NULL,   -- when stored bytes are added up again
    jobs_since  timestamptz NOT NULL,   -- runs that ended before it are in no job's usage
    jobs_until  timestamptz NOT NULL    -- runs that ended before it are
);
INSERT INTO meter_state (gauged_at, stored_next, jobs_since, jobs_until)
SELECT 'epoch', 'epoch', coalesce(max(metered_until), 'epoch'), coalesce(max(metered_until), date_trunc('minute', now()))
FROM cell;

-- Bytes that a tenant stores, as they were last added up.
CREATE TABLE meter_stored (
    tenant_id     uuid NOT NULL,
    region_policy text NOT NULL,
    bytes         bigint NOT NULL CHECK (bytes >= 0),
    PRIMARY KEY (tenant_id, region_policy)
);

-- Runs that ended, by the job and the UTC day they ended on. Folded from what the journal says of runs,
-- not from what it says of meters: the one can be held against the other.
CREATE TABLE job_usage (
    tenant_id     uuid NOT NULL,
    day           date NOT NULL,
    job_id        uuid NOT NULL,
    region_policy text NOT NULL,
    runs          bigint NOT NULL CHECK (runs > 0),
    PRIMARY KEY (tenant_id, day, job_id)
);

-- A day of the journal stays until its runs are counted by job, too.
CREATE OR REPLACE FUNCTION drop_journal_day(before date) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    child   regclass;
    metered timestamptz := (SELECT least(c.metered_until, m.jobs_until) FROM cell c CROSS JOIN meter_state m);
    read_to xid8 := (SELECT xid FROM journal_readers ORDER BY xid LIMIT 1);
    unread  boolean;
BEGIN
    SELECT c.oid::regclass INTO child
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'journal'::regclass AND c.relname ~ '^journal_[0-9]{8}$'
      AND to_date(right(c.relname, 8), 'YYYYMMDD') < before
      AND (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC' <= metered
    ORDER BY c.relname LIMIT 1;
    IF child IS NULL OR read_to IS NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE xid >= $1)', child) INTO unread USING read_to;
    IF unread THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %s', child);
    RETURN true;
END $$;
