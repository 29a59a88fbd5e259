-- The end of an activity is told in fewer steps: it is made as the text that it is stored as, and whether its workflow is
-- still here is looked at by the engine, which deletes words for those that are not.
CREATE OR REPLACE FUNCTION activity_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)
    VALUES (NEW.tenant_id, NEW.parent_id, NEW.shard, 'ACTIVITY', convert_to(json_build_object(
        'ordinal', NEW.ordinal, 'state', NEW.state, 'reason', NEW.reason, 'attempts', NEW.attempts)::text, 'UTF8'));
    RETURN NULL;
END $$;
