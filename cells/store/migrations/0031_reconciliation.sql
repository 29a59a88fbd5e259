-- Executions that somebody should compare with what the other side has: stuck ones, and those that undid a
-- step without knowing whether it had happened. And timers of workflows, counted for the tenant's quota.

ALTER TABLE workflows ADD COLUMN unsure boolean NOT NULL DEFAULT false;  -- undid what may not have happened
CREATE INDEX workflows_to_reconcile ON workflows (tenant_id, started_at, run_id)
    WHERE unsure OR status = 'COMPENSATION_STUCK';
CREATE INDEX workflows_pending ON workflows (tenant_id) WHERE timer_at IS NOT NULL;
