-- Changes of watched days of runs, one row each: rows that are only added make nobody wait for anybody,
-- however many days a transaction changes and in whatever order. Folded into lake_days at each look.
CREATE TABLE lake_touches (
    day date NOT NULL,
    at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX lake_touches_day ON lake_touches (day);

CREATE OR REPLACE FUNCTION runs_day_touched() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO lake_touches (day) VALUES (TG_ARGV[0]::date);
    RETURN NULL;
END $$;

-- Adds the changes that were committed to a day's count.
CREATE FUNCTION fold_touches(wanted date) RETURNS void LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM lake_touches WHERE day = wanted RETURNING at)
    UPDATE lake_days SET touched = touched + g.n, quiet_since = greatest(quiet_since, g.latest)
    FROM (SELECT count(*) AS n, max(at) AS latest FROM gone) AS g
    WHERE day = wanted AND g.n > 0
$$;

CREATE OR REPLACE FUNCTION watch_runs_day(wanted date, OUT seen bigint, OUT metered boolean) LANGUAGE plpgsql AS $$
DECLARE
    child text := format('runs_%s', to_char(wanted, 'YYYYMMDD'));
BEGIN
    INSERT INTO lake_days (day) VALUES (wanted) ON CONFLICT DO NOTHING;
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(child) AND tgname = 'watched') THEN
        EXECUTE format('CREATE TRIGGER watched AFTER INSERT OR UPDATE OR DELETE ON %I FOR EACH ROW '
                       'EXECUTE FUNCTION runs_day_touched(%L)', child, wanted);
        UPDATE lake_days SET quiet_since = clock_timestamp() WHERE day = wanted;
    END IF;
    PERFORM fold_touches(wanted);
    SELECT touched, (SELECT metered_until FROM cell) > quiet_since + interval '1 minute' INTO seen, metered
    FROM lake_days WHERE day = wanted;
END $$;

CREATE OR REPLACE FUNCTION drop_runs_day(wanted date, seen bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    child regclass := to_regclass(format('runs_%s', to_char(wanted, 'YYYYMMDD')));
BEGIN
    IF child IS NULL THEN
        RETURN false;
    END IF;
    LOCK TABLE ONLY runs IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', child);
    PERFORM fold_touches(wanted);
    IF (SELECT touched FROM lake_days WHERE day = wanted FOR UPDATE) IS DISTINCT FROM seen THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %s', child);
    UPDATE lake_days SET dropped_at = clock_timestamp() WHERE day = wanted;
    RETURN true;
END $$;
