-- name: corrections_append_only
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON billing_meter_correction
    FOR EACH STATEMENT EXECUTE FUNCTION billing_refuse_changes();

-- name: corrections_append_only_undo
DROP TRIGGER append_only ON billing_meter_correction;

-- name: keep_period_function
-- A closed period never changes: neither its own row, nor a sum of it, nor what was adjusted into it.
CREATE FUNCTION billing_keep_period() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'CLOSED' THEN
        RAISE EXCEPTION 'the period % of % is closed', OLD.month, OLD.tenant_id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

-- name: keep_period_function_undo
DROP FUNCTION billing_keep_period CASCADE;

-- name: keep_period
CREATE TRIGGER keep_closed BEFORE UPDATE OR DELETE ON billing_period
    FOR EACH ROW EXECUTE FUNCTION billing_keep_period();

-- name: keep_sums_function
-- Sums are checked a statement at a time: a month of thousands of tenants is millions of rows. The argument
-- is the column by which a row belongs to a month.
CREATE FUNCTION billing_keep_closed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    closed date;
    month  text := CASE TG_ARGV[0] WHEN 'hour' THEN 'date_trunc(''month'', c.hour, ''UTC'') AT TIME ZONE ''UTC'''
                                   WHEN 'day'  THEN 'date_trunc(''month'', c.day::timestamp)'
                                   ELSE 'c.' || TG_ARGV[0] END;
BEGIN
    EXECUTE format('SELECT p.month FROM (SELECT DISTINCT c.tenant_id, (%s)::date AS month FROM changed c) m
                    JOIN billing_period p USING (tenant_id, month) WHERE p.state = ''CLOSED'' LIMIT 1', month)
        INTO closed;
    IF closed IS NOT NULL THEN
        RAISE EXCEPTION '% is of the closed period %', TG_TABLE_NAME, closed USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;

-- name: keep_sums_function_undo
DROP FUNCTION billing_keep_closed CASCADE;

-- name: keep_sums
DO $$
DECLARE
    t record;
BEGIN
    FOR t IN SELECT * FROM (VALUES ('billing_usage_hour', 'hour'), ('billing_usage_day', 'day'),
                                   ('billing_usage_month', 'month'), ('billing_usage_adjustment', 'into_month'))
                      AS kept (name, month)
             CROSS JOIN (VALUES ('INSERT', 'NEW'), ('UPDATE', 'OLD'), ('UPDATE', 'NEW'), ('DELETE', 'OLD'))
                      AS acts (act, which)
    LOOP
        EXECUTE format('CREATE TRIGGER %I AFTER %s ON %I REFERENCING %s TABLE AS changed
                        FOR EACH STATEMENT EXECUTE FUNCTION billing_keep_closed(%L)',
                       lower('keep_closed_' || t.act || '_' || t.which), t.act, t.name, t.which, t.month);
    END LOOP;
END $$;

-- name: fill_hours
-- Hours of what was recorded before they were kept.
INSERT INTO billing_usage_hour (tenant_id, hour, metric, region_policy, cell, quantity, records)
SELECT tenant_id, date_trunc('hour', minute, 'UTC'), metric, region_policy, cell, sum(quantity)::bigint, count(*)
FROM billing_meter_record GROUP BY 1, 2, 3, 4, 5;

-- name: fill_months
-- Months of the days there are.
INSERT INTO billing_usage_month (tenant_id, month, metric, region_policy, cell, quantity, records)
SELECT tenant_id, date_trunc('month', day::timestamp)::date, metric, region_policy, cell, sum(quantity), sum(records)
FROM billing_usage_day GROUP BY 1, 2, 3, 4, 5;

-- name: fill_periods
-- Periods of the months there are.
INSERT INTO billing_period (tenant_id, month, state, waits_for)
SELECT DISTINCT tenant_id, month, 'OPEN', '[]'::jsonb FROM billing_usage_month;
