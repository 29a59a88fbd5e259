-- name: refuse_changes
-- The ledger takes inserts only.
CREATE OR REPLACE FUNCTION billing_refuse_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;

-- name: append_only
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON billing_meter_record
    FOR EACH STATEMENT EXECUTE FUNCTION billing_refuse_changes();

-- name: append_only_undo
DROP TRIGGER append_only ON billing_meter_record;
