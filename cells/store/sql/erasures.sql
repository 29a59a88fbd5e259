-- name: erase_halt
-- The tenant (tenant_id) is at work nowhere here, and never again; what is known of its erasure.
WITH halted AS (
    UPDATE tenants n SET state = 'MOVED', told_state = 'SUSPENDED', move_id = NULL, barrier_until = NULL, updated_at = now()
    FROM cell c WHERE n.tenant_id = %(tenant)s AND (n.state <> 'MOVED' OR n.move_id IS NOT NULL)
      AND (c.lease_until IS NULL OR c.lease_until > clock_timestamp()) RETURNING 1)
INSERT INTO erased_tenants AS e (tenant_id, erasure_id)
SELECT %(tenant)s, %(erasure)s FROM cell c WHERE c.lease_until IS NULL OR c.lease_until > clock_timestamp()
ON CONFLICT (tenant_id) DO UPDATE SET
    erasure_id = excluded.erasure_id,
    quiet_at = CASE WHEN EXISTS (SELECT FROM halted) THEN NULL ELSE e.quiet_at END,
    lake_after = CASE WHEN EXISTS (SELECT FROM halted) THEN '' ELSE e.lake_after END
RETURNING quiet_at, lake_after, counts, erased_at;

-- name: erase_quiet
-- Nobody is at work any more who saw the tenant (tenant_id) at work.
UPDATE erased_tenants SET quiet_at = coalesce(quiet_at, clock_timestamp()) WHERE tenant_id = %(tenant)s RETURNING quiet_at;

-- name: erase_links
-- What moves of the tenant (tenant_id) may have left: publications and slots here, subscriptions to other cells.
SELECT DISTINCT link FROM transfers WHERE tenant_id = %(tenant)s;

-- name: cell_erasure_tables
-- Tables that have rows of tenants; names no tenant's rows.
SELECT erasure_tables();

-- name: erase_rows
-- Deletes a page of the rows of one tenant_id in one table.
SELECT erase_rows(%(table)s, %(tenant)s, %(page)s);

-- name: erase_journal
-- Takes what a page of journal rows says of a tenant (its tenant_id in hex) out of them: how many, and the key behind which to
-- go on. The same bytes may be in a name that another tenant chose: only rows that come to something else count.
WITH of_it AS MATERIALIZED (
    SELECT at, host_id, seq FROM journal
    WHERE at >= %(at)s AND (at, host_id, seq) > (%(at)s, %(host)s, %(seq)s)
      AND CASE WHEN position(convert_to(%(tenant_hex)s, 'UTF8') IN body) > 0
          THEN convert_from(journal_without(body, %(tenant_hex)s), 'UTF8')::jsonb <> convert_from(body, 'UTF8')::jsonb ELSE false END
    ORDER BY at, host_id, seq LIMIT %(page)s),
changed AS (
    UPDATE journal j SET body = journal_without(j.body, %(tenant_hex)s) FROM of_it o
    WHERE (j.at, j.host_id, j.seq) = (o.at, o.host_id, o.seq) RETURNING 1)
SELECT (SELECT count(*) FROM changed), o.at, o.host_id, o.seq FROM of_it o ORDER BY o.at DESC, o.host_id DESC, o.seq DESC LIMIT 1;

-- name: erase_lengthened
-- Pages of an operation that end at the tenant (tenant_id).
DELETE FROM lengthened_pages WHERE after_tenant = %(tenant)s;

-- name: erase_counted
-- What was removed of the tenant (tenant_id) so far, and how far the lake was looked through.
UPDATE erased_tenants SET counts = %(counts)s::jsonb, lake_after = %(lake_after)s WHERE tenant_id = %(tenant)s;

-- name: erase_left
-- Rows of the tenant (tenant_id) that are still in some table.
WITH names AS MATERIALIZED (SELECT name FROM erasure_tables() AS name),
counted AS MATERIALIZED (SELECT name, transfer_count(name, %(tenant)s) AS n FROM names)
SELECT name, n FROM counted WHERE n > 0;

-- name: erase_done
-- All is gone: nothing here knows the tenant (tenant_id) but that it was erased.
WITH gone AS (DELETE FROM tenants WHERE tenant_id = %(tenant)s AND state = 'MOVED' RETURNING 1)
UPDATE erased_tenants SET erased_at = clock_timestamp() WHERE tenant_id = %(tenant)s RETURNING erased_at;

-- name: erased_tenant
-- Whether this cell has erased the tenant (tenant_id), or is at it.
SELECT 1 FROM erased_tenants WHERE tenant_id = %(tenant)s;

-- name: cell_erased_tenants
-- Every tenant that was erased here, or is being erased.
SELECT tenant_id, erasure_id, erased_at FROM erased_tenants ORDER BY tenant_id;

-- name: cell_lake_files
-- Every file of the lake behind a name, in the order of names: of runs with the day, of workflows without.
SELECT name, day, rows, bytes, sha256, runs FROM (
    SELECT name, day, rows, bytes, sha256, true AS runs FROM lake_files
    UNION ALL SELECT name, day, rows, bytes, sha256, false FROM lake_workflow_files) AS f
WHERE name > %(after)s ORDER BY name LIMIT %(limit)s;

-- name: cell_lake_swap_runs
-- A file of a day of runs is replaced by what was left of it, or goes; how many there were of it, and the
-- day's generation.
WITH old AS (DELETE FROM lake_files WHERE day = %(day)s AND name = %(old)s RETURNING rows),
made AS (
    INSERT INTO lake_files (day, name, rows, bytes, sha256)
    SELECT %(day)s, %(new)s, %(rows)s, %(bytes)s, %(sha256)s FROM old WHERE %(rows)s::bigint > 0),
raised AS (
    UPDATE lake_days SET generation = generation + 1, rows = lake_days.rows - old.rows + %(rows)s FROM old
    WHERE day = %(day)s RETURNING generation, overlapping)
SELECT count(*)::int, max(generation), bool_or(overlapping) FROM raised;

-- name: lake_swap_workflows
-- A file of workflows is replaced by what was left of it, or goes; others than the erased tenant (tenant_id) find
-- theirs in the new one. How many there were of it.
WITH old AS (DELETE FROM lake_workflow_files WHERE name = %(old)s RETURNING rows, by_tenant),
made AS (
    INSERT INTO lake_workflow_files (day, name, rows, bytes, sha256, by_tenant)
    SELECT %(day)s, %(new)s, %(rows)s, %(bytes)s, %(sha256)s, by_tenant FROM old WHERE %(rows)s::bigint > 0),
whose AS (
    INSERT INTO lake_workflow_tenants (tenant_id, name, began_from, began_until)
    SELECT t.tenant_id, %(new)s, t.began_from, t.began_until FROM lake_workflow_tenants t CROSS JOIN old
    WHERE t.name = %(old)s AND t.tenant_id <> %(tenant)s AND %(rows)s::bigint > 0)
SELECT count(*)::int, NULL::bigint, NULL::boolean FROM old;
