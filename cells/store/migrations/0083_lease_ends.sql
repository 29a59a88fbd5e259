-- A heartbeat moves the indexed end of a lease only when that end is near: between such moves a beat changes no indexed
-- column, so it is written beside the row that it replaces, and into no index. The lease ends with what the last beat
-- gave, or with the stored end, whichever is later.
CREATE FUNCTION lease_end(stored timestamptz, beat timestamptz, lease_ms integer) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN stored IS NOT NULL THEN greatest(stored, beat + lease_ms * interval '1 millisecond') END
$$;
