-- name: lake_take
-- One writer of the lake at a time: a row if it is this host, which stays it for a while.
INSERT INTO lake_writer (host_id, until) VALUES (%(host)s, clock_timestamp() + %(seconds)s * interval '1 second')
ON CONFLICT (singleton) DO UPDATE SET host_id = EXCLUDED.host_id, until = EXCLUDED.until
WHERE lake_writer.host_id = EXCLUDED.host_id OR lake_writer.until < clock_timestamp()
RETURNING true;

-- name: lake_leave
-- This host writes the lake no more.
UPDATE lake_writer SET until = clock_timestamp() WHERE host_id = %(host)s;

-- name: lake_calendar
-- Every day that has a partition of runs or is in the lake, oldest first, and the database's time.
SELECT c.day, bool_or(c.partitioned), d.generation, d.rows, d.unfinished, d.overlapping, d.looked_at, d.dropped_at,
       clock_timestamp()
FROM (SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day, true AS partitioned
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
      WHERE i.inhparent = 'runs'::regclass AND c.relname ~ '^runs_[0-9]{8}$'
      UNION ALL SELECT day, false FROM lake_days) AS c
LEFT JOIN lake_days d ON d.day = c.day
GROUP BY c.day, d.day ORDER BY c.day;

-- name: lake_files
-- The files of a day.
SELECT name, rows, bytes, sha256 FROM lake_files WHERE day = %(day)s ORDER BY name;

-- name: lake_file_names
-- Every file that is part of the lake.
SELECT name FROM lake_files;

-- name: lake_page
-- A page of a day's runs that are over (any tenant_id), from a key on; those that ended since some time.
SELECT tenant_id::text, parent_id::text, scheduled_for, ordinal, kind, state, priority, version, epoch, series, attempt,
       due_at, released_at, claimed_at, started_at, finished_at, cancel_requested, target_id, http_status, reason,
       skipped, attempts::text, task_queue, worker, at_most_once
FROM runs
WHERE scheduled_for >= %(from)s AND scheduled_for < %(until)s AND finished_at >= %(ended_from)s
  AND (tenant_id, scheduled_for, parent_id, ordinal) > (%(tenant)s::uuid, %(at)s::timestamptz, %(parent)s::uuid, %(ordinal)s::int)
ORDER BY tenant_id, scheduled_for, parent_id, ordinal LIMIT %(page)s;

-- name: lake_check_page
-- A page of a day's runs (any tenant_id), from a key on: how many, how many not over, the sum of their
-- fingerprints, and the last key. The lake adds up the same (cells/lake/sql).
SELECT count(*), count(*) FILTER (WHERE finished_at IS NULL),
       coalesce(sum(('x' || left(md5(concat_ws('|', tenant_id, parent_id, extract(epoch FROM scheduled_for)::bigint,
                                               ordinal, series, epoch, state)), 15))::bit(60)::bigint), 0)::text,
       (array_agg(tenant_id))[count(*)], (array_agg(scheduled_for))[count(*)], (array_agg(parent_id))[count(*)],
       (array_agg(ordinal))[count(*)]
FROM (SELECT tenant_id, parent_id, scheduled_for, ordinal, series, epoch, state, finished_at FROM runs
      WHERE scheduled_for >= %(from)s AND scheduled_for < %(until)s
        AND (tenant_id, scheduled_for, parent_id, ordinal) > (%(tenant)s::uuid, %(at)s::timestamptz, %(parent)s::uuid, %(ordinal)s::int)
      ORDER BY tenant_id, scheduled_for, parent_id, ordinal LIMIT %(page)s) AS r;

-- name: lake_commit_day
-- A new generation of a day, unless somebody was faster.
INSERT INTO lake_days (day, generation, rows, unfinished, overlapping, looked_at, dropped_at)
VALUES (%(day)s, 1, %(rows)s, %(unfinished)s, %(further)s, %(looked_at)s, CASE WHEN %(gone)s THEN clock_timestamp() END)
ON CONFLICT (day) DO UPDATE
SET generation = lake_days.generation + 1, unfinished = EXCLUDED.unfinished, looked_at = EXCLUDED.looked_at,
    rows = EXCLUDED.rows + CASE WHEN %(further)s THEN lake_days.rows ELSE 0 END,
    overlapping = EXCLUDED.overlapping AND (EXCLUDED.rows > 0 OR lake_days.overlapping),
    dropped_at = coalesce(lake_days.dropped_at, EXCLUDED.dropped_at)
WHERE lake_days.generation = %(base)s
RETURNING generation;

-- name: lake_remove_files
-- The files of a day are replaced; what they were called.
DELETE FROM lake_files WHERE day = %(day)s RETURNING name;

-- name: lake_add_files
-- Files of a day.
INSERT INTO lake_files (day, name, rows, bytes, sha256)
SELECT %(day)s, name, rows, bytes, sha256
FROM unnest(%(names)s::text[], %(rows)s::bigint[], %(bytes)s::bigint[], %(hashes)s::bytea[]) AS f (name, rows, bytes, sha256);

-- name: lake_watch
-- Counts changes of a day from now on; how many there have been, and whether all that ended is metered.
SELECT seen, metered FROM watch_runs_day(%(day)s);

-- name: lake_drop_day
-- Drops a day of runs if nothing has touched it since it was verified.
SELECT drop_runs_day(%(day)s, %(seen)s);

-- name: lake_strays
-- Runs of days long past that have no partition, over and metered (by tenant_id).
SELECT r.tenant_id::text, r.parent_id::text, r.scheduled_for, r.ordinal, r.kind, r.state, r.priority, r.version, r.epoch,
       r.series, r.attempt, r.due_at, r.released_at, r.claimed_at, r.started_at, r.finished_at, r.cancel_requested,
       r.target_id, r.http_status, r.reason, r.skipped, r.attempts::text, r.task_queue, r.worker, r.at_most_once
FROM tenants t CROSS JOIN LATERAL (
    SELECT * FROM runs_default
    WHERE tenant_id = t.tenant_id AND scheduled_for < %(before)s
      AND finished_at < (SELECT metered_until FROM cell) - interval '1 hour'
    ORDER BY scheduled_for LIMIT %(page)s) AS r
LIMIT %(page)s;

-- name: lake_remove_strays
-- Such runs (tenant_id, parent, instant, ordinal), once they are in the lake as they are.
DELETE FROM runs_default r
USING unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[], %(series)s::int[],
             %(epochs)s::bigint[], %(states)s::text[])
      AS c (tenant_id, parent_id, scheduled_for, ordinal, series, epoch, state)
WHERE r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id AND r.scheduled_for = c.scheduled_for
  AND r.ordinal = c.ordinal AND r.series = c.series AND r.epoch = c.epoch AND r.state = c.state;

-- name: lake_expire
-- Forgets days of the lake that lie wholly before some day; their files go with them.
DELETE FROM lake_days WHERE day < %(before)s AND dropped_at IS NOT NULL;

-- name: lake_horizon
-- The earliest instant a run that is here may be scheduled for: that of the oldest partition, or of the
-- oldest row without one (over each tenant_id).
SELECT least(
    (SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD'))::timestamp AT TIME ZONE 'UTC'
     FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = 'runs'::regclass AND c.relname ~ '^runs_[0-9]{8}$'),
    (SELECT min(oldest) FROM tenants t CROSS JOIN LATERAL (
        SELECT scheduled_for AS oldest FROM runs_default WHERE tenant_id = t.tenant_id
        ORDER BY scheduled_for LIMIT 1) AS r));

-- name: lake_ended_jobs
-- Jobs (tenant_id, job) that ended before some time and have no run here any more. With each go its
-- versions, facets and dead letters.
WITH ended AS (
    SELECT tenant_id, job_id FROM jobs j
    WHERE due_at IS NULL AND state IN ('CANCELLED', 'DONE') AND updated_at < %(before)s
      AND NOT EXISTS (SELECT FROM runs r WHERE r.tenant_id = j.tenant_id AND r.parent_id = j.job_id)
    ORDER BY updated_at LIMIT %(page)s FOR UPDATE SKIP LOCKED
),
versions AS (DELETE FROM job_versions v USING ended e WHERE v.tenant_id = e.tenant_id AND v.job_id = e.job_id),
facets AS (DELETE FROM job_facets f USING ended e WHERE f.tenant_id = e.tenant_id AND f.job_id = e.job_id),
letters AS (DELETE FROM dlq d USING ended e WHERE d.tenant_id = e.tenant_id AND d.parent_id = e.job_id)
DELETE FROM jobs j USING ended e WHERE j.tenant_id = e.tenant_id AND j.job_id = e.job_id;

-- name: lake_old_versions
-- Versions of jobs (tenant_id, job) that were replaced before some time; the first one stays, lists stand
-- on it. A run made under them was scheduled before they were replaced, and none of those is here.
DELETE FROM job_versions WHERE ctid = ANY(ARRAY(
    SELECT o.ctid FROM job_versions n
    JOIN job_versions o ON o.tenant_id = n.tenant_id AND o.job_id = n.job_id AND o.version = n.version - 1
    WHERE n.version > 1 AND n.created_at >= %(since)s AND n.created_at < %(before)s AND o.version > 1
    ORDER BY n.created_at LIMIT %(page)s));

-- name: lake_dead_letters
-- Dead letters (of any tenant_id) whose time is over.
DELETE FROM dlq WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM dlq WHERE failed_at < %(before)s ORDER BY failed_at LIMIT %(page)s FOR UPDATE SKIP LOCKED));
