-- A site may have a local store beside the cell's own, which no other region has a copy of. Its number is in the ids
-- of its rows. 0: the cell's own store.
ALTER TABLE cell ADD COLUMN store smallint NOT NULL DEFAULT 0 CHECK (store BETWEEN 0 AND 255);

-- In the cell's own store: which local stores hold rows of a tenant, written before the first of them is. Each is to
-- have the tenant's targets, secrets, definitions, calendars and configuration as they are under `wanted`, which every
-- change of one of these raises; `told` is what the store has confirmed, to the owner under `told_epoch`.
CREATE TABLE local_stores (
    tenant_id  uuid NOT NULL,
    store      smallint NOT NULL CHECK (store BETWEEN 1 AND 255),
    wanted     bigint NOT NULL DEFAULT 1,
    told       bigint NOT NULL DEFAULT 0,
    told_epoch bigint NOT NULL DEFAULT 0,
    since      timestamptz NOT NULL DEFAULT now(),
    -- Whoever changed something when this row was not there yet has ended by now, and it is told.
    settled    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, store)
);

-- In a local store: the latest snapshot it has of a tenant.
CREATE TABLE snapshots (
    tenant_id uuid NOT NULL,
    epoch     bigint NOT NULL,      -- of the cell's owner that sent it
    version   bigint NOT NULL,      -- what `local_stores.wanted` was
    taken_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id)
);

-- Under the lock of these rows, so that a version has one content.
CREATE FUNCTION want_snapshot() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    tenant uuid := CASE WHEN TG_OP = 'DELETE' THEN OLD.tenant_id ELSE NEW.tenant_id END;
BEGIN
    PERFORM FROM local_stores WHERE tenant_id = tenant ORDER BY store FOR NO KEY UPDATE;
    IF FOUND THEN
        UPDATE local_stores SET wanted = wanted + 1 WHERE tenant_id = tenant;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER want_snapshot AFTER INSERT OR UPDATE OR DELETE ON targets FOR EACH ROW EXECUTE FUNCTION want_snapshot();
CREATE TRIGGER want_snapshot AFTER INSERT OR UPDATE OR DELETE ON target_secrets
    FOR EACH ROW EXECUTE FUNCTION want_snapshot();
CREATE TRIGGER want_snapshot AFTER INSERT ON workflow_definitions FOR EACH ROW EXECUTE FUNCTION want_snapshot();
CREATE TRIGGER want_snapshot AFTER INSERT OR DELETE OR UPDATE OF version, name ON calendars
    FOR EACH ROW EXECUTE FUNCTION want_snapshot();
CREATE TRIGGER want_snapshot AFTER UPDATE OF state, config ON tenants
    FOR EACH ROW EXECUTE FUNCTION want_snapshot();
