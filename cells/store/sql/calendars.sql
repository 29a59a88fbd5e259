-- name: calendar_get
-- A calendar (tenant_id, calendar) with the version that holds now.
SELECT c.calendar_id, c.version, c.name, v.content, c.created_by, c.created_at, c.updated_at, c.pending, c.moved
FROM calendars c JOIN calendar_versions v USING (tenant_id, calendar_id, version)
WHERE c.tenant_id = %(tenant)s AND c.calendar_id = %(calendar)s;

-- name: calendar_list
-- A page of a tenant's calendars by id.
SELECT c.calendar_id, c.version, c.name, v.content, c.created_by, c.created_at, c.updated_at, c.pending, c.moved
FROM calendars c JOIN calendar_versions v USING (tenant_id, calendar_id, version)
WHERE c.tenant_id = %(tenant)s AND c.calendar_id > coalesce(%(after)s::text, '')
ORDER BY c.calendar_id LIMIT %(limit)s;

-- name: calendar_lock
-- A calendar's version for whoever is about to change it (tenant_id, calendar).
SELECT c.version, c.name, v.content
FROM calendars c JOIN calendar_versions v USING (tenant_id, calendar_id, version)
WHERE c.tenant_id = %(tenant)s AND c.calendar_id = %(calendar)s FOR NO KEY UPDATE OF c;

-- name: calendar_insert
-- A new calendar (tenant_id, calendar), its version above those of one of that name that was deleted.
INSERT INTO calendars (tenant_id, calendar_id, version, name, created_by)
SELECT %(tenant)s, %(calendar)s, coalesce(max(version), 0) + 1, %(name)s, %(actor)s
FROM calendar_versions WHERE tenant_id = %(tenant)s AND calendar_id = %(calendar)s
RETURNING version;

-- name: calendar_change
-- The next version of a calendar (tenant_id, calendar): from now on its jobs are to follow it.
UPDATE calendars SET version = version + 1, name = %(name)s, updated_at = now(), pending = true, after_at = NULL,
                     after_job = NULL, moved = 0
WHERE tenant_id = %(tenant)s AND calendar_id = %(calendar)s
RETURNING version;

-- name: calendar_rename
-- Another name for a calendar (tenant_id, calendar); its content stays.
UPDATE calendars SET name = %(name)s, updated_at = now()
WHERE tenant_id = %(tenant)s AND calendar_id = %(calendar)s;

-- name: calendar_version_insert
-- What a version of a calendar (tenant_id, calendar, version) excludes.
INSERT INTO calendar_versions (tenant_id, calendar_id, version, content, created_by)
VALUES (%(tenant)s, %(calendar)s, %(version)s, %(content)s, %(actor)s);

-- name: calendar_delete
-- A calendar (tenant_id, calendar) goes; its versions stay with the jobs that ended under them.
DELETE FROM calendars WHERE tenant_id = %(tenant)s AND calendar_id = %(calendar)s;

-- name: calendar_jobs
-- Jobs of a tenant that refer to a calendar and may run again, up to a number of them.
SELECT count(*)::int FROM (
    SELECT FROM job_facets f JOIN jobs j ON j.tenant_id = f.tenant_id AND j.job_id = f.job_id
    WHERE f.tenant_id = %(tenant)s AND f.facet = %(facet)s AND j.state IN ('ACTIVE', 'PAUSED')
    LIMIT %(limit)s) AS found;

-- name: calendar_contents
-- Versions of calendars (tenant_id, calendar, version), by position in the request.
SELECT w.i::int, v.content
FROM unnest(%(tenants)s::uuid[], %(calendars)s::text[], %(versions)s::int[]) WITH ORDINALITY AS w (tenant_id, calendar_id, version, i)
JOIN calendar_versions v USING (tenant_id, calendar_id, version);

-- name: calendar_held
-- The versions that hold now of some calendars (tenant_id, calendar), by position; they stay so until
-- the transaction ends.
SELECT w.i::int, c.version
FROM unnest(%(tenants)s::uuid[], %(calendars)s::text[]) WITH ORDINALITY AS w (tenant_id, calendar_id, i)
JOIN calendars c USING (tenant_id, calendar_id)
ORDER BY c.tenant_id, c.calendar_id FOR SHARE OF c;

-- name: calendar_next
-- Locks a calendar that jobs have yet to follow (any tenant_id that is active here); passes over those
-- that somebody else works on.
SELECT c.tenant_id, t.ownership_epoch, t.config::text, c.calendar_id, c.version, c.after_at, c.after_job, c.moved,
       v.content
FROM calendars c
JOIN tenants t ON t.tenant_id = c.tenant_id AND t.state = 'ACTIVE'
JOIN calendar_versions v ON v.tenant_id = c.tenant_id AND v.calendar_id = c.calendar_id AND v.version = c.version
WHERE c.pending
ORDER BY c.updated_at LIMIT 1
FOR NO KEY UPDATE OF c SKIP LOCKED;

-- name: calendar_page
-- The next jobs of a tenant (tenant_id) that refer to a calendar.
SELECT created_at, job_id FROM job_facets
WHERE tenant_id = %(tenant)s AND facet = %(facet)s
  AND (created_at, job_id) > (coalesce(%(after_at)s::timestamptz, '-infinity'),
                              coalesce(%(after_job)s::uuid, '00000000-0000-0000-0000-000000000000'))
ORDER BY created_at, job_id LIMIT %(limit)s;

-- name: calendar_advance
-- How far the jobs of a calendar (tenant_id, calendar) are, in the transaction that moved them.
UPDATE calendars SET after_at = %(after_at)s, after_job = %(after_job)s, moved = moved + %(moved)s, pending = %(pending)s
WHERE tenant_id = %(tenant)s AND calendar_id = %(calendar)s;

-- name: skips_forget
-- What a job (tenant_id, job) was told beforehand that it would not run, and that is to be told anew.
DELETE FROM runs WHERE tenant_id = %(tenant)s AND parent_id = %(job)s AND scheduled_for > %(now)s
  AND ordinal = 0 AND state = 'SKIPPED' AND reason IN ('calendar', 'dst_gap');

-- name: skips_insert
-- Occurrences of jobs (tenant_id, job, instant) that will not run, with the reason, unless they have a
-- row already.
INSERT INTO runs (tenant_id, parent_id, scheduled_for, state, shard, priority, version, epoch, due_at, claimed_at,
                  finished_at, target_id, reason, skipped)
SELECT tenant_id, job_id, scheduled_for, 'SKIPPED', shard, priority, version, epoch, scheduled_for, clock_timestamp(),
       clock_timestamp(), target_id, reason, skipped
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[], %(instants)s::timestamptz[], %(shards)s::smallint[],
            %(priorities)s::smallint[], %(versions)s::int[], %(epochs)s::bigint[], %(targets)s::text[],
            %(reasons)s::text[], %(skips)s::int[])
     AS s (tenant_id, job_id, scheduled_for, shard, priority, version, epoch, target_id, reason, skipped)
ON CONFLICT DO NOTHING;
