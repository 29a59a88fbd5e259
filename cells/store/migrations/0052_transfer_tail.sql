-- What a comparison after the seal needs of one table, in one look at the tenant's rows: how many there are,
-- and the keys with checksums ("h") of those that changed since a snapshot.
CREATE FUNCTION transfer_tail(tbl text, tenant uuid, since xid8, OUT n bigint, OUT keys jsonb) LANGUAGE plpgsql STABLE AS $$
DECLARE
    pair text := (SELECT string_agg(format('%L, t.%I', c, c), ', ') FROM unnest(transfer_key(tbl)) AS c);
BEGIN
    EXECUTE format(
        'SELECT count(*), coalesce(jsonb_agg(jsonb_build_object(%s, ''h'', hashtextextended(t::text, 0))) '
        'FILTER (WHERE age(t.xmin) <= age($2::xid)), ''[]'') FROM %I t WHERE t.tenant_id = $1', pair, tbl)
    INTO n, keys USING tenant, since;
END $$;
