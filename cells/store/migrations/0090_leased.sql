-- A cell with sites in several regions is owned under a lease (lease_until). Before its owner renews that elsewhere,
-- it shows here that this database still takes writes.
ALTER TABLE cell ADD COLUMN probed_at timestamptz;

-- A lease that began is never taken back to none: only a database that is set up for it is leased.
CREATE FUNCTION keep_leased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.lease_until IS NOT NULL AND NEW.lease_until IS NULL THEN
        RAISE EXCEPTION 'a cell that is owned under a lease stays so';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER cell_keep_leased BEFORE UPDATE OF lease_until ON cell FOR EACH ROW EXECUTE FUNCTION keep_leased();
