-- name: due
-- Erasures that can go on now.
SELECT id FROM custody_erasure WHERE state IN ('REQUESTED', 'RUNNING') AND due_at <= statement_timestamp()
ORDER BY due_at, id LIMIT %(limit)s;

-- name: begin
-- The time of grace is over: from here on there is no way back.
UPDATE custody_erasure SET state = 'RUNNING', began_at = statement_timestamp()
WHERE id = %(id)s AND state = 'REQUESTED' AND due_at <= statement_timestamp() RETURNING id;

-- name: end_exports
-- Exports of everything that are open end; until when somebody may still write a file stays known.
UPDATE custody_tenantexport SET state = 'FAILED', lease = NULL, error = 'the tenant is erased', finished_at = statement_timestamp()
WHERE tenant_id = %(tenant)s AND state IN ('REQUESTED', 'RUNNING');

-- name: end_billing_exports
-- The same for exports of billing, the tenant's and operators' about it.
UPDATE billing_export SET state = 'FAILED', lease = NULL, error = 'the tenant is erased', finished_at = statement_timestamp()
WHERE (tenant_id = %(tenant)s OR about_tenant_id = %(tenant)s) AND state IN ('REQUESTED', 'RUNNING');

-- name: written
-- How many exports of a tenant somebody may be writing who has not found out yet that they are over.
SELECT (SELECT count(*) FROM custody_tenantexport
        WHERE tenant_id = %(tenant)s AND leased_until > statement_timestamp() - make_interval(secs => %(seconds)s))
     + (SELECT count(*) FROM billing_export
        WHERE (tenant_id = %(tenant)s OR about_tenant_id = %(tenant)s)
          AND leased_until > statement_timestamp() - make_interval(secs => %(seconds)s));

-- name: tables
-- Every table of the public schema with a column that names a tenant, and that column.
SELECT c.relname::text, a.attname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND a.attname IN ('tenant_id', 'about_tenant_id') AND NOT a.attisdropped
ORDER BY 1, 2;

-- name: count
-- Rows of a tenant in one table.
SELECT custody_count(%(table)s, %(column)s, %(tenant)s);

-- name: forget
-- Deletes a page of a tenant's rows of one table; how many went.
SELECT custody_forget(%(table)s, %(column)s, %(tenant)s, %(page)s);

-- name: forget_by_key
-- What is kept under a tenant's id as a text: stored answers, and effects that are still wanted.
WITH answers AS (DELETE FROM api_idempotencykey WHERE scope = %(tenant)s RETURNING 1),
effects AS (DELETE FROM events_outboxitem WHERE subject = %(tenant)s RETURNING 1)
SELECT (SELECT count(*) FROM answers), (SELECT count(*) FROM effects);

-- name: forget_audit
-- Deletes a page of what the audit log says of a tenant, but that it was erased; how many went.
WITH gone AS (
    DELETE FROM events_auditevent WHERE id = ANY (ARRAY(
        SELECT id FROM events_auditevent WHERE tenant_id = %(tenant)s AND action NOT LIKE 'tenant.erasure%%'
        LIMIT %(page)s)) RETURNING 1)
SELECT count(*) FROM gone;
