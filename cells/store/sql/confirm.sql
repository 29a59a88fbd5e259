-- name: cell_confirm_waits
-- This transaction's commit waits until a standby has flushed it, where there is one; no other's does.
SET LOCAL synchronous_commit = on;

-- name: cell_confirm_mark
-- Something to commit, under the cell's lease; no row where that has ended. It is in the log only.
-- And whether the commit will wait for anybody: where no standby is named it does not.
SELECT current_setting('synchronous_standby_names') <> '', pg_logical_emit_message(true, 'clockhouse', '') FROM cell
WHERE lease_until IS NULL OR lease_until > clock_timestamp();
