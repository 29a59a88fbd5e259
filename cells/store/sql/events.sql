-- name: events_append
-- What a transaction has to tell (tenant_id), under the ownership epoch of now.
INSERT INTO events (tenant_id, type, subject, actor, data, epoch)
SELECT n.*, coalesce((SELECT t.ownership_epoch FROM tenants t WHERE t.tenant_id = n.tenant_id), 0)
FROM unnest(%(tenants)s::uuid[], %(types)s::text[], %(subjects)s::text[], %(actors)s::text[], %(data)s::bytea[])
     AS n (tenant_id, type, subject, actor, data);

-- name: events_after
-- The events of a tenant behind a position that can no longer get company, oldest first: those of a type
-- among the next `looks`, and the last one looked at, which says how far that was. What an earlier home wrote
-- is final; the numbers of its transactions mean nothing here.
SELECT e.epoch, e.xid::text::bigint, seq, at, type, subject, actor, data, fits, n
FROM (SELECT looked.*, row_number() OVER (ORDER BY epoch, xid, seq) AS n,
             lead(seq) OVER (ORDER BY epoch, xid, seq) IS NULL AS last,
             %(type)s::text IS NULL OR type = %(type)s OR starts_with(type, %(type)s || '.') AS fits
      FROM (SELECT epoch, xid, seq, at, type, subject, actor, data
            FROM events
            WHERE tenant_id = %(tenant)s
              AND (epoch, xid, seq) > (%(epoch)s::bigint, %(xid)s::bigint::text::xid8, %(seq)s::bigint)
              AND (xid < pg_snapshot_xmin(pg_current_snapshot())
                   OR epoch < (SELECT t.ownership_epoch FROM tenants t WHERE t.tenant_id = %(tenant)s))
            ORDER BY epoch, xid, seq LIMIT %(looks)s) AS looked) AS e
WHERE fits OR last
ORDER BY e.epoch, e.xid, e.seq LIMIT %(limit)s + 1;

-- name: events_newest
-- The newest of them, newest first; with the very newest, whatever its type.
SELECT e.epoch, e.xid::text::bigint, seq, at, type, subject, actor, data, fits, n
FROM (SELECT looked.*, row_number() OVER (ORDER BY epoch DESC, xid DESC, seq DESC) AS n,
             %(type)s::text IS NULL OR type = %(type)s OR starts_with(type, %(type)s || '.') AS fits
      FROM (SELECT epoch, xid, seq, at, type, subject, actor, data
            FROM events
            WHERE tenant_id = %(tenant)s
              AND (xid < pg_snapshot_xmin(pg_current_snapshot())
                   OR epoch < (SELECT t.ownership_epoch FROM tenants t WHERE t.tenant_id = %(tenant)s))
            ORDER BY epoch DESC, xid DESC, seq DESC LIMIT %(looks)s) AS looked) AS e
WHERE fits OR n = 1
ORDER BY e.epoch DESC, e.xid DESC, e.seq DESC LIMIT %(limit)s + 1;

-- name: events_of_many
-- For each of several tenants (tenant_id) the events behind its place that can no longer get company, oldest
-- first: those of the types asked for among the next `looks`, and the last one looked at. A tenant without a
-- place begins behind what was there at its instant.
SELECT w.tenant_id, e.epoch, e.xid::text::bigint, e.seq, e.at, e.type, e.subject, e.actor, e.data, e.fits, e.n
FROM unnest(%(tenants)s::uuid[], %(epochs)s::bigint[], %(xids)s::bigint[], %(seqs)s::bigint[],
            %(since)s::timestamptz[]) AS w (tenant_id, epoch, xid, seq, since)
JOIN tenants t ON t.tenant_id = w.tenant_id
LEFT JOIN LATERAL (SELECT o.epoch, o.xid, o.seq FROM events o
                   WHERE w.epoch < 0 AND o.tenant_id = w.tenant_id AND o.at < w.since
                   ORDER BY o.epoch DESC, o.xid DESC, o.seq DESC LIMIT 1) AS before ON true
CROSS JOIN LATERAL (
    SELECT looked.*, row_number() OVER (ORDER BY looked.epoch, looked.xid, looked.seq) AS n,
           lead(looked.seq) OVER (ORDER BY looked.epoch, looked.xid, looked.seq) IS NULL AS last,
           looked.type = ANY(%(types)s::text[]) AS fits
    FROM (SELECT v.epoch, v.xid, v.seq, v.at, v.type, v.subject, v.actor, v.data
          FROM events v
          WHERE v.tenant_id = w.tenant_id
            AND (v.epoch, v.xid, v.seq) > (coalesce(before.epoch, w.epoch),
                                           coalesce(before.xid, w.xid::text::xid8), coalesce(before.seq, w.seq))
            AND (v.xid < pg_snapshot_xmin(pg_current_snapshot()) OR v.epoch < t.ownership_epoch)
          ORDER BY v.epoch, v.xid, v.seq LIMIT %(looks)s) AS looked) AS e
WHERE e.fits OR e.last
ORDER BY w.tenant_id, e.epoch, e.xid, e.seq;

-- name: events_jobs
-- What jobs of some tenants (tenant_id) are called, and their tags.
SELECT j.tenant_id, j.job_id, j.name,
       ARRAY(SELECT substr(f.facet, 5) FROM job_facets f
             WHERE f.tenant_id = j.tenant_id AND f.job_id = j.job_id AND f.facet LIKE 'tag:%%' ORDER BY f.facet)
FROM unnest(%(tenants)s::uuid[], %(jobs)s::uuid[]) AS w (tenant_id, job_id)
JOIN jobs j ON j.tenant_id = w.tenant_id AND j.job_id = w.job_id;

-- name: events_late
-- Active tenants (tenant_id) whose earliest occurrence waits for longer than it should, from now on or no longer,
-- where that is news. Work that its people paused, or that waits for its budget, is not late.
UPDATE tenants t SET late_since = CASE WHEN n.late THEN clock_timestamp() END
FROM (SELECT o.tenant_id, e.due_at,
             coalesce(NOT o.paused AND NOT o.low_delayed
                      AND e.due_at < clock_timestamp() - %(after)s * interval '1 second', false) AS late
      FROM tenants o
      LEFT JOIN LATERAL (SELECT j.due_at FROM jobs j WHERE j.tenant_id = o.tenant_id AND j.due_at IS NOT NULL
                         ORDER BY j.due_at LIMIT 1) AS e ON true
      WHERE o.state = 'ACTIVE'
        AND (o.late_since IS NOT NULL) <> coalesce(NOT o.paused AND NOT o.low_delayed
                      AND e.due_at < clock_timestamp() - %(after)s * interval '1 second', false)
      ORDER BY o.tenant_id FOR NO KEY UPDATE OF o SKIP LOCKED) AS n
WHERE t.tenant_id = n.tenant_id
RETURNING t.tenant_id, n.late, n.due_at;

-- name: cell_events_home
-- The cell's epoch: a takeover raises it.
SELECT epoch FROM cell;
