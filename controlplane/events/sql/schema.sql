-- name: refuse_changes
-- A table with this trigger takes inserts only.
CREATE OR REPLACE FUNCTION refuse_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;

-- name: audit_append_only
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON events_auditevent
    FOR EACH ROW EXECUTE FUNCTION refuse_changes();

-- name: audit_append_only_undo
DROP TRIGGER append_only ON events_auditevent;

-- name: change_xid
-- Which transaction wrote a row: the cursor's currency.
ALTER TABLE routing_change ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id();

-- name: change_xid_index
CREATE INDEX routing_change_xid ON routing_change (xid);

-- name: change_xid_undo
ALTER TABLE routing_change DROP COLUMN xid;

-- name: horizon_row
INSERT INTO routing_feed_horizon (singleton, identity, oldest_xid)
VALUES (true, gen_random_uuid(), 0) ON CONFLICT DO NOTHING;
