-- Of each quota of a tenant a local store has a part; the cell's own store has what is left of it. `tenants.config` holds
-- what counts here; where that is less than was said, `whole` in it has what was said. Saying the same again, with or
-- without `whole`, changes nothing. A local store has no rows in `local_stores`, and was sent its part.
CREATE FUNCTION share_quotas() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    said jsonb := (NEW.config || coalesce(NEW.config -> 'whole', '{}')) - 'whole';
    stores int := (SELECT count(*) FROM local_stores WHERE tenant_id = NEW.tenant_id);
    whole jsonb;
    here jsonb;
BEGIN
    IF stores > 0 THEN
        SELECT jsonb_object_agg(q.key, q.n),
               jsonb_object_agg(q.key, least(q.n, greatest(1, q.n - stores * greatest(1, q.n / 4))))
        INTO whole, here
        FROM (SELECT e.key, e.value::text::bigint AS n FROM jsonb_each(said) AS e
              WHERE e.key IN ('job_runs_per_second', 'strict_jobs_per_second', 'pending_timers', 'running_runs',
                              'workflow_steps_per_second')) AS q;
        said := said || coalesce(here, '{}') || jsonb_build_object('whole', coalesce(whole, '{}'));
    END IF;
    NEW.config := said;
    RETURN NEW;
END $$;
CREATE TRIGGER share_quotas BEFORE INSERT OR UPDATE OF config ON tenants FOR EACH ROW EXECUTE FUNCTION share_quotas();

CREATE FUNCTION share_quotas_anew() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tenants SET config = config WHERE tenant_id = NEW.tenant_id;
    RETURN NULL;
END $$;
CREATE TRIGGER share_quotas_anew AFTER INSERT ON local_stores FOR EACH ROW EXECUTE FUNCTION share_quotas_anew();

UPDATE tenants SET config = config WHERE tenant_id IN (SELECT tenant_id FROM local_stores);
