-- Which days of runs are in the history lake, in which files, and how a day leaves this database:
-- written, verified while a trigger counts whatever still changes it, dropped if nothing has.

CREATE TABLE lake_days (
    day         date PRIMARY KEY,                   -- UTC, of runs.scheduled_for
    generation  bigint NOT NULL DEFAULT 0,          -- raised with each commit of files
    rows        bigint NOT NULL DEFAULT 0,          -- over all files; a run may be in several if `overlapping`
    unfinished  bigint NOT NULL DEFAULT 0,          -- rows that were not over when it was last looked at
    overlapping boolean NOT NULL DEFAULT false,     -- a further file may hold a later state of the same run
    looked_at   timestamptz,                        -- when the last look began
    touched     bigint NOT NULL DEFAULT 0,          -- changes of its rows, counted once it is watched
    quiet_since timestamptz,                        -- the last change, or the beginning of the watch
    dropped_at  timestamptz                         -- its rows are in the lake only
);

CREATE TABLE lake_files (
    day    date NOT NULL REFERENCES lake_days ON DELETE CASCADE,
    name   text NOT NULL,
    rows   bigint NOT NULL,
    bytes  bigint NOT NULL,
    sha256 bytea NOT NULL,
    PRIMARY KEY (day, name)
);

-- The process that writes the lake. Two at once would do no harm, only the work twice.
CREATE TABLE lake_writer (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    host_id   bigint NOT NULL,
    until     timestamptz NOT NULL
);

-- Counts a change of a watched day in the transaction that makes it.
CREATE FUNCTION runs_day_touched() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE lake_days SET touched = touched + 1, quiet_since = clock_timestamp() WHERE day = TG_ARGV[0]::date;
    RETURN NULL;
END $$;

-- Counts changes of a day from now on; how many there have been, and whether all that ended is metered:
-- a transaction lasts less than a minute.
CREATE FUNCTION watch_runs_day(wanted date, OUT seen bigint, OUT metered boolean) LANGUAGE plpgsql AS $$
DECLARE
    child text := format('runs_%s', to_char(wanted, 'YYYYMMDD'));
BEGIN
    INSERT INTO lake_days (day) VALUES (wanted) ON CONFLICT DO NOTHING;
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(child) AND tgname = 'watched') THEN
        EXECUTE format('CREATE TRIGGER watched AFTER INSERT OR UPDATE OR DELETE ON %I FOR EACH ROW '
                       'EXECUTE FUNCTION runs_day_touched(%L)', child, wanted);
        UPDATE lake_days SET quiet_since = clock_timestamp() WHERE day = wanted;
    END IF;
    SELECT touched, (SELECT metered_until FROM cell) > quiet_since + interval '1 minute' INTO seen, metered
    FROM lake_days WHERE day = wanted;
END $$;

-- Drops a day of runs that was verified and is metered; false if it changed since `seen` was read. The
-- parent is locked first, as its writers do.
CREATE FUNCTION drop_runs_day(wanted date, seen bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    child regclass := to_regclass(format('runs_%s', to_char(wanted, 'YYYYMMDD')));
BEGIN
    IF child IS NULL THEN
        RETURN false;
    END IF;
    LOCK TABLE ONLY runs IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', child);
    IF (SELECT touched FROM lake_days WHERE day = wanted FOR UPDATE) IS DISTINCT FROM seen THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %s', child);
    UPDATE lake_days SET dropped_at = clock_timestamp() WHERE day = wanted;
    RETURN true;
END $$;
