-- name: cell_confirm_waits
-- This transaction's commit waits until a standby has flushed it, where there is one; no other's does.
SET LOCAL synchronous_commit = on;

-- name: cell_confirm_mark
-- Something to commit, under the cell's lease; no row where that has ended. It is in the log only.
-- And whether the commit will wait for anybody: where no standby is named it does not. And which sites were given up by a
-- takeover, and not read since.
SELECT current_setting('synchronous_standby_names') <> '', pg_logical_emit_message(true, 'clockhouse', ''),
       ARRAY(SELECT DISTINCT region FROM unread_sites WHERE settled_at IS NULL ORDER BY region)
FROM cell
WHERE lease_until IS NULL OR lease_until > clock_timestamp();

-- name: strict_parent
-- Whether a job, or an execution of a workflow (tenant_id, id), is STRICT.
SELECT EXISTS (SELECT FROM jobs WHERE tenant_id = %(tenant)s AND job_id = %(parent)s AND region_policy = 'STRICT')
    OR EXISTS (SELECT FROM workflows WHERE tenant_id = %(tenant)s AND run_id = %(parent)s AND region_policy = 'STRICT');

-- name: strict_selection
-- Whether any job, or any workflow's step, of a selection (tenant_id, selection) is STRICT. Looked for one by one
-- only where the tenant has anything that is.
SELECT (EXISTS (SELECT FROM jobs WHERE tenant_id = %(tenant)s AND region_policy = 'STRICT')
        AND EXISTS (SELECT FROM selection_chunks c CROSS JOIN LATERAL unnest(c.job_ids) AS s (id)
                    JOIN jobs j ON j.tenant_id = c.tenant_id AND j.job_id = s.id AND j.region_policy = 'STRICT'
                    WHERE c.tenant_id = %(tenant)s AND c.selection_id = %(selection)s))
    OR (EXISTS (SELECT FROM workflows WHERE tenant_id = %(tenant)s AND region_policy = 'STRICT')
        AND EXISTS (SELECT FROM selection_chunks c CROSS JOIN LATERAL unnest(c.job_ids) AS s (id)
                    JOIN workflows w ON w.tenant_id = c.tenant_id AND w.run_id = s.id AND w.region_policy = 'STRICT'
                    WHERE c.tenant_id = %(tenant)s AND c.selection_id = %(selection)s));
