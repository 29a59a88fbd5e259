-- name: count_function
CREATE FUNCTION custody_count(tbl text, col text, tenant uuid) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    n bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM %I WHERE %I = $1', tbl, col) INTO n USING tenant;
    RETURN n;
END $$;

-- name: forget_function
-- Only of a tenant whose erasure has begun.
CREATE FUNCTION custody_forget(tbl text, col text, tenant uuid, page integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    n bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM custody_erasure WHERE tenant_id = tenant AND state = 'RUNNING') THEN
        RAISE EXCEPTION 'tenant % is not being erased', tenant;
    END IF;
    EXECUTE format('DELETE FROM %I WHERE ctid = ANY (ARRAY(SELECT ctid FROM %I WHERE %I = $1 LIMIT $2))', tbl, tbl, col)
    USING tenant, page;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

-- name: audit_function
-- The audit log takes inserts only. What it says of a tenant goes with the tenant, but not that it was erased.
CREATE FUNCTION audit_goes_with_its_tenant() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.action NOT LIKE 'tenant.erasure%' AND EXISTS (
            SELECT FROM custody_erasure WHERE tenant_id = OLD.tenant_id AND state = 'RUNNING') THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;

-- name: audit_trigger_drop
DROP TRIGGER append_only ON events_auditevent;

-- name: audit_trigger
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON events_auditevent
    FOR EACH ROW EXECUTE FUNCTION audit_goes_with_its_tenant();

-- name: audit_trigger_undo
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON events_auditevent
    FOR EACH ROW EXECUTE FUNCTION refuse_changes();

-- name: audit_function_drop
DROP FUNCTION audit_goes_with_its_tenant;

-- name: forget_function_drop
DROP FUNCTION custody_forget;

-- name: count_function_drop
DROP FUNCTION custody_count;
