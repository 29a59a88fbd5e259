-- Tenants that are erased, or being erased. Their ids are all that stays: by them this cell refuses whatever
-- would bring one back, and a region that returns drops what it still had of them.
CREATE TABLE erased_tenants (
    tenant_id  uuid PRIMARY KEY,
    erasure_id uuid NOT NULL,
    halted_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    quiet_at   timestamptz,                 -- from here on no transaction was open that had seen it at work
    lake_after text NOT NULL DEFAULT '',    -- files of the lake up to this name hold nothing of it
    counts     jsonb NOT NULL DEFAULT '{}', -- what was removed, by table and kind
    erased_at  timestamptz                  -- null: it goes on
);

-- Tables whose rows belong to a tenant: all that have the column, so that a new one is in it by itself.
CREATE FUNCTION erasure_tables() RETURNS SETOF text LANGUAGE sql STABLE AS $$
    SELECT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND a.attname = 'tenant_id' AND c.relname NOT IN ('erased_tenants', 'tenants')
    -- What refers comes before what it refers to.
    ORDER BY c.relname <> 'target_secrets', c.relname
$$;

-- Deletes at most so many of a tenant's rows; how many went. Only of one that is being erased and is at work nowhere.
CREATE FUNCTION erase_rows(tbl text, tenant uuid, page integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    key text := (SELECT string_agg(format('%I', c), ', ') FROM unnest(transfer_key(tbl)) AS c);
    n   bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM erased_tenants WHERE tenant_id = tenant)
       OR EXISTS (SELECT FROM tenants WHERE tenant_id = tenant AND state <> 'MOVED' FOR SHARE) THEN
        RAISE EXCEPTION 'tenant % is not being erased', tenant;
    END IF;
    EXECUTE format('DELETE FROM %I WHERE (%s) IN (SELECT %s FROM %I WHERE tenant_id = $1 LIMIT $2)', tbl, key, key, tbl)
    USING tenant, page;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

-- A journal row without what it says of a tenant. The row stays: readers and other regions know it by its key.
CREATE FUNCTION journal_without(body bytea, tenant text) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT convert_to(coalesce(jsonb_object_agg(e.key, CASE WHEN jsonb_typeof(e.value) <> 'array' THEN e.value ELSE (
        SELECT coalesce(jsonb_agg(x.value ORDER BY x.ordinality), '[]')
        FROM jsonb_array_elements(e.value) WITH ORDINALITY AS x WHERE x.value ->> 0 IS DISTINCT FROM tenant) END), '{}')::text, 'UTF8')
    FROM jsonb_each(convert_from(body, 'UTF8')::jsonb) AS e
$$;
