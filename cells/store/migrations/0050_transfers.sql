-- Tenants move between cells: what a cell knows of a move, marks that tell how far the other side has come,
-- and the work on "all of a tenant's rows", which takes the names of tables.

-- A move decides about the state of the tenants it holds; what the control plane says meanwhile waits here.
ALTER TABLE tenants ADD COLUMN told_state text NOT NULL DEFAULT 'ACTIVE';
UPDATE tenants SET told_state = state;
ALTER TABLE tenants ADD COLUMN move_id uuid;
ALTER TABLE tenants ADD COLUMN barrier_until timestamptz;   -- BARRIER: when it lifts by itself

-- This cell's side of a move. States mirror cells/transfer/sides.py.
CREATE TABLE transfers (
    tenant_id    uuid NOT NULL,
    move_id      uuid NOT NULL,
    side         text NOT NULL CHECK (side IN ('SOURCE', 'DESTINATION')),
    attempt      integer NOT NULL,          -- a takeover begins the next one
    state        text NOT NULL CHECK (state IN ('PREPARED', 'PUBLISHED', 'BARRIER', 'SEALED', 'MOVED', 'SUBSCRIBED',
                 'READY', 'ACTIVE', 'DONE', 'UNDONE')),
    peer         text NOT NULL,             -- the other cell
    peer_url     text NOT NULL DEFAULT '',  -- SOURCE: where what is still under way is handed on to
    tenant_epoch bigint NOT NULL,           -- before the move
    cell_epoch   bigint NOT NULL,           -- of this cell, when this attempt began
    link         text NOT NULL,             -- name of publication, slot, role and subscription
    conninfo     text NOT NULL DEFAULT '',  -- DESTINATION: where the source's rows are read; holds no password
    sealed_lsn   pg_lsn,
    new_epoch    bigint,
    facts        jsonb NOT NULL DEFAULT '{}',
    began_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    touched_at   timestamptz NOT NULL DEFAULT clock_timestamp(),   -- when the control plane last asked for something
    PRIMARY KEY (tenant_id, move_id, side)
);
CREATE UNIQUE INDEX transfers_open ON transfers (tenant_id) WHERE state NOT IN ('DONE', 'UNDONE');

-- Written by the source, read at the destination: all that was committed before a mark is there with it.
CREATE TABLE transfer_marks (
    tenant_id uuid NOT NULL,
    move_id   uuid NOT NULL,
    lsn       pg_lsn NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, move_id, lsn)
);

-- Columns of a table's primary key, in order.
CREATE FUNCTION transfer_key(tbl text) RETURNS text[] LANGUAGE sql STABLE AS $$
    SELECT array_agg(a.attname::text ORDER BY k.n)
    FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (attnum, n)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = tbl::regclass AND i.indisprimary
$$;

-- Rows and checksum of a tenant's rows, in buckets by a hash of the key.
CREATE FUNCTION transfer_digest(tbl text, tenant uuid, buckets integer)
RETURNS TABLE (bucket integer, n bigint, checksum text) LANGUAGE plpgsql STABLE AS $$
DECLARE
    key text := (SELECT string_agg(format('t.%I', c), ', ') FROM unnest(transfer_key(tbl)) AS c);
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT (hashtextextended(ROW(%s)::text, 1) & (%s - 1))::integer, count(*), sum(hashtextextended(t::text, 0))::text '
        'FROM %I t WHERE t.tenant_id = $1 GROUP BY 1', key, buckets, tbl) USING tenant;
END $$;

-- Keys with the checksum of their rows ("h"): of some buckets those that have not changed since a snapshot,
-- or (no buckets) of all those that have.
CREATE FUNCTION transfer_rows(tbl text, tenant uuid, buckets integer, wanted integer[], since xid8)
RETURNS SETOF jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    key  text := (SELECT string_agg(format('t.%I', c), ', ') FROM unnest(transfer_key(tbl)) AS c);
    pair text := (SELECT string_agg(format('%L, t.%I', c, c), ', ') FROM unnest(transfer_key(tbl)) AS c);
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT jsonb_build_object(%s, ''h'', hashtextextended(t::text, 0)) FROM %I t WHERE t.tenant_id = $1 AND '
        || CASE WHEN wanted IS NULL THEN 'age(t.xmin) <= age($3::xid)'
                ELSE 'age(t.xmin) > age($3::xid) AND (hashtextextended(ROW(%s)::text, 1) & (%s - 1))::integer = ANY ($2)' END,
        pair, tbl, key, buckets) USING tenant, wanted, since;
END $$;

-- Which of some keys have no row here with that checksum.
CREATE FUNCTION transfer_missing(tbl text, tenant uuid, keys jsonb) RETURNS SETOF jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    names text := (SELECT string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ')
                   FROM pg_attribute a WHERE a.attrelid = tbl::regclass AND a.attname = ANY (transfer_key(tbl)));
    same  text := (SELECT string_agg(format('t.%I = k.%I', c, c), ' AND ') FROM unnest(transfer_key(tbl)) AS c);
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT to_jsonb(k) FROM jsonb_to_recordset($1) AS k (%s, h bigint) WHERE NOT EXISTS (SELECT FROM %I t '
        'WHERE t.tenant_id = $2 AND %s AND hashtextextended(t::text, 0) = k.h)', names, tbl, same) USING keys, tenant;
END $$;

-- How many rows a tenant has in a table.
CREATE FUNCTION transfer_count(tbl text, tenant uuid) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    n bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM %I WHERE tenant_id = $1', tbl) INTO n USING tenant;
    RETURN n;
END $$;

-- Deletes at most so many of a tenant's rows; how many went. Never of a tenant that is at home here.
CREATE FUNCTION transfer_delete(tbl text, tenant uuid, page integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    key text := (SELECT string_agg(format('%I', c), ', ') FROM unnest(transfer_key(tbl)) AS c);
    n   bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM tenants WHERE tenant_id = tenant AND state = 'MOVED' FOR SHARE) THEN
        RAISE EXCEPTION 'tenant % is at home here', tenant;
    END IF;
    EXECUTE format('DELETE FROM %I WHERE (%s) IN (SELECT %s FROM %I WHERE tenant_id = $1 LIMIT $2)', tbl, key, key, tbl)
    USING tenant, page;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

-- Makes the publication of a tenant's rows and the role that may read them. In a transaction of its own,
-- before the slot.
CREATE FUNCTION transfer_publish(link text, tenant uuid, tables text[], password text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = link) THEN
        EXECUTE format('CREATE ROLE %I LOGIN REPLICATION CONNECTION LIMIT 20 PASSWORD %L', link, password);
    END IF;
    EXECUTE format('GRANT SELECT ON TABLE %s TO %I', (SELECT string_agg(format('%I', t), ', ') FROM unnest(tables) AS t), link);
    IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = link) THEN
        EXECUTE format('CREATE PUBLICATION %I FOR TABLE %s WITH (publish = ''insert, update, delete'', publish_via_partition_root = true)',
            link, (SELECT string_agg(format('%I WHERE (tenant_id = %L)', t, tenant), ', ') FROM unnest(tables) AS t));
    END IF;
END $$;

-- Undoes it, the slot first: ends whoever still reads from it.
CREATE FUNCTION transfer_unpublish(link text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_publication WHERE pubname = link) THEN
        EXECUTE format('DROP PUBLICATION %I', link);
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = link) THEN
        EXECUTE format('DROP OWNED BY %I', link);
        EXECUTE format('DROP ROLE %I', link);
    END IF;
END $$;

-- Subscribes to a publication whose slot is there already.
CREATE FUNCTION transfer_subscribe(link text, conninfo text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_subscription WHERE subname = link
                   AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())) THEN
        EXECUTE format('CREATE SUBSCRIPTION %I CONNECTION %L PUBLICATION %I WITH (create_slot = false, slot_name = %L, '
                       'copy_data = true, disable_on_error = true, binary = false)', link, conninfo, link, link);
    END IF;
END $$;

-- Drops a subscription and leaves the slot to the other side, which may be away.
CREATE FUNCTION transfer_unsubscribe(link text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_subscription WHERE subname = link
               AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())) THEN
        EXECUTE format('ALTER SUBSCRIPTION %I DISABLE', link);
        EXECUTE format('ALTER SUBSCRIPTION %I SET (slot_name = NONE)', link);
        EXECUTE format('DROP SUBSCRIPTION %I', link);
    END IF;
END $$;

CREATE FUNCTION transfer_analyze(tables text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    tbl text;
BEGIN
    FOREACH tbl IN ARRAY tables LOOP
        EXECUTE format('ANALYZE %I', tbl);
    END LOOP;
END $$;

-- Numbers that this cell gives out go beyond those that came along.
CREATE FUNCTION transfer_raise_identities(tables text[], tenant uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    tbl text;
    col text;
    top bigint;
BEGIN
    FOR tbl, col IN SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                    WHERE c.oid = ANY (SELECT t::regclass FROM unnest(tables) AS t) AND a.attidentity <> '' LOOP
        EXECUTE format('SELECT max(%I) FROM %I WHERE tenant_id = $1', col, tbl) INTO top USING tenant;
        IF top IS NOT NULL THEN
            PERFORM setval(pg_get_serial_sequence(tbl, col), greatest(top, nextval(pg_get_serial_sequence(tbl, col))));
        END IF;
    END LOOP;
END $$;

-- Rows that are copied into a watched day fire no trigger: no day leaves while a tenant comes in.
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
    IF EXISTS (SELECT FROM transfers WHERE side = 'DESTINATION' AND state IN ('PREPARED', 'SUBSCRIBED', 'READY')) THEN
        RETURN false;
    END IF;
    PERFORM fold_touches(wanted);
    IF (SELECT touched FROM lake_days WHERE day = wanted FOR UPDATE) IS DISTINCT FROM seen THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %s', child);
    UPDATE lake_days SET dropped_at = clock_timestamp() WHERE day = wanted;
    RETURN true;
END $$;
