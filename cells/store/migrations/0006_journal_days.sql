-- Days of the journal end: what they hold has been counted and read.

-- Drops the oldest day that lies wholly before `before`; false if there is none that may go.
-- It may go when it is metered (from then on no row is dated into it) and when every reader's
-- cursor lies behind all its rows. One day a call: the lock on the journal is short.
CREATE FUNCTION drop_journal_day(before date) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    child   regclass;
    metered timestamptz := (SELECT metered_until FROM cell);
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
