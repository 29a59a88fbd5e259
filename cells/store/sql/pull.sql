-- name: offer_insert_runs
-- Claimed occurrences (tenant_id, job, instant, ordinal) whose work is polled for: READY.
INSERT INTO runs (tenant_id, parent_id, scheduled_for, ordinal, state, shard, priority, version, due_at, released_at,
                  target_id, task_queue, at_most_once, guarded)
SELECT tenant_id, parent_id, scheduled_for, ordinal, 'READY', shard, priority, version, due_at, released_at,
       target_id, task_queue, at_most_once, guarded
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(shards)s::smallint[], %(priorities)s::smallint[], %(versions)s::int[], %(dues)s::timestamptz[],
            %(released)s::timestamptz[], %(targets)s::text[], %(queues)s::text[], %(once)s::boolean[],
            %(guards)s::boolean[])
     AS c (tenant_id, parent_id, scheduled_for, ordinal, shard, priority, version, due_at, released_at, target_id,
           task_queue, at_most_once, guarded);

-- name: offer_update_runs
-- Waiting runs locked in this transaction (tenant_id, parent, instant, ordinal) become READY.
UPDATE runs r
SET state = 'READY', timer_at = NULL, released_at = c.released_at, task_queue = c.task_queue,
    at_most_once = c.at_most_once, host_id = NULL, worker = NULL, reason = NULL
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(released)s::timestamptz[], %(queues)s::text[], %(once)s::boolean[])
     AS c (tenant_id, parent_id, scheduled_for, ordinal, released_at, task_queue, at_most_once)
WHERE r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id
  AND r.scheduled_for = c.scheduled_for AND r.ordinal = c.ordinal;

-- name: pull_lock
-- The first READY tasks of some queues (tenant_id, task_queue, how many), by class and then by due time, of each
-- class from a time on; locked, where the tenant is active here and neither it nor the queue is paused. Those that
-- somebody else holds are passed over, and what is LOW of a tenant whose budget is spent. A version is looked up for
-- itself (OFFSET 0): joined, a plan from when there were few would walk all of the tenant's for each task.
SELECT q.i::int, r.parent_id, r.scheduled_for, r.ordinal, r.version, r.epoch, r.series, r.attempt, r.priority, r.shard,
       r.due_at, r.released_at, r.traceparent, t.ownership_epoch, coalesce(r.spec, v.definition), coalesce(r.input, v.payload),
       v.traceparent, clock_timestamp()
FROM unnest(%(tenants)s::uuid[], %(queues)s::text[], %(counts)s::int[], %(critical)s::timestamptz[],
            %(high)s::timestamptz[], %(default)s::timestamptz[], %(low)s::timestamptz[])
     WITH ORDINALITY AS q (tenant_id, task_queue, wanted, critical, high, "default", low, i)
JOIN tenants t ON t.tenant_id = q.tenant_id AND t.state = 'ACTIVE' AND NOT t.paused
CROSS JOIN LATERAL (
    SELECT f.* FROM unnest(ARRAY[q.critical, q.high, q."default", q.low]) WITH ORDINALITY AS c (since, n)
    CROSS JOIN LATERAL (
        SELECT o.* FROM runs o
        WHERE o.tenant_id = q.tenant_id AND o.task_queue = q.task_queue AND o.state = 'READY'
          AND o.priority = (c.n - 1)::smallint AND o.due_at >= c.since
        ORDER BY o.due_at LIMIT q.wanted
        FOR NO KEY UPDATE SKIP LOCKED) AS f
    WHERE NOT (c.n = 4 AND t.low_delayed)
    LIMIT q.wanted) AS r
LEFT JOIN LATERAL (SELECT * FROM job_versions j WHERE r.spec IS NULL AND j.tenant_id = q.tenant_id
                   AND j.job_id = r.parent_id AND j.version = r.version OFFSET 0) AS v ON true
WHERE coalesce(r.spec, v.definition) IS NOT NULL
  AND NOT EXISTS (SELECT FROM task_queues p WHERE p.tenant_id = q.tenant_id AND p.task_queue = q.task_queue
                  AND p.paused_at IS NOT NULL);

-- name: pull_shut
-- Of which of some tenants (tenant_id) polls get nothing now: of no class, or but for what is LOW.
SELECT tenant_id, paused OR state <> 'ACTIVE' FROM tenants
WHERE tenant_id = ANY(%(tenants)s::uuid[]) AND (paused OR state <> 'ACTIVE' OR low_delayed);

-- name: pull_take
-- READY tasks locked in this transaction (tenant_id, parent, instant, ordinal) are their workers'.
UPDATE runs r
SET state = 'RUNNING', epoch = c.epoch, attempt = r.attempt + 1, host_id = NULL, worker = c.worker,
    lease_ms = c.lease_ms, lease_expires_at = c.lease_until, claimed_at = %(now)s, started_at = %(now)s,
    heartbeat_at = NULL, progress = NULL
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(epochs)s::bigint[], %(leases)s::timestamptz[], %(lease_ms)s::int[], %(workers)s::text[])
     AS c (tenant_id, parent_id, scheduled_for, ordinal, epoch, lease_until, lease_ms, worker)
WHERE r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id
  AND r.scheduled_for = c.scheduled_for AND r.ordinal = c.ordinal;

-- name: pull_give_back
-- Claims given back undone (tenant_id, parent, instant, ordinal, epoch): READY, the attempt not counted. Pulled, as
-- `pull_heartbeat` tells it.
UPDATE runs r
SET state = CASE WHEN r.cancel_requested THEN 'CANCELLED' ELSE 'READY' END,
    finished_at = CASE WHEN r.cancel_requested THEN clock_timestamp() END,
    lease_expires_at = NULL, attempt = r.attempt - 1
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(epochs)s::bigint[]) WITH ORDINALITY AS c (tenant_id, parent_id, scheduled_for, ordinal, epoch, i),
     tenants t
WHERE r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id
  AND r.scheduled_for = c.scheduled_for AND r.ordinal = c.ordinal
  AND r.state = 'RUNNING' AND r.epoch = c.epoch AND r.host_id IS NULL AND r.lease_ms IS NOT NULL
  AND t.tenant_id = c.tenant_id AND t.state IN ('ACTIVE', 'BARRIER', 'SUSPENDED')
RETURNING c.i::int, r.state, r.task_queue, (SELECT j.region_policy FROM jobs j
                                            WHERE j.tenant_id = r.tenant_id AND j.job_id = r.parent_id);

-- name: pull_held_by
-- What one worker of a queue holds (tenant_id, task_queue, worker).
SELECT parent_id, scheduled_for, ordinal, epoch FROM runs
WHERE tenant_id = %(tenant)s AND task_queue = %(queue)s AND state = 'RUNNING' AND worker = %(worker)s
LIMIT %(limit)s;

-- name: pull_heartbeat
-- Extends the leases of claims (tenant_id, parent, instant, ordinal, epoch) by their length; keeps progress. The indexed
-- end moves when it would be behind by half of the lease, or by 30 s (`lease_end` tells the whole; `use_running` counts
-- on the 30 s). That a run is pulled is told by its `lease_ms`: with its queue, the index of what a queue's workers hold
-- would do, and be walked for every claim.
UPDATE runs r
SET lease_expires_at = CASE WHEN r.lease_expires_at < clock_timestamp()
                                 + greatest(r.lease_ms / 2, r.lease_ms - 30000) * interval '1 millisecond'
                            THEN clock_timestamp() + r.lease_ms * interval '1 millisecond' ELSE r.lease_expires_at END,
    heartbeat_at = clock_timestamp(), progress = coalesce(c.progress, r.progress)
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(epochs)s::bigint[], %(progress)s::text[]::jsonb[])
     WITH ORDINALITY AS c (tenant_id, parent_id, scheduled_for, ordinal, epoch, progress, i),
     tenants t
WHERE r.tenant_id = c.tenant_id AND r.parent_id = c.parent_id
  AND r.scheduled_for = c.scheduled_for AND r.ordinal = c.ordinal
  AND r.state = 'RUNNING' AND r.epoch = c.epoch AND r.host_id IS NULL AND r.lease_ms IS NOT NULL
  AND t.tenant_id = c.tenant_id AND t.state IN ('ACTIVE', 'BARRIER', 'SUSPENDED')
RETURNING c.i::int, lease_end(r.lease_expires_at, r.heartbeat_at, r.lease_ms), r.lease_ms, r.cancel_requested;

-- name: pull_runs
-- Runs (tenant_id, parent, instant, ordinal) as their completion needs them.
SELECT w.i::int, r.state, r.version, r.epoch, r.series, r.attempt, r.priority, r.shard, r.due_at, r.claimed_at,
       r.lease_ms, r.cancel_requested, r.worker, coalesce(r.spec, v.definition), r.attempts::text
FROM unnest(%(tenants)s::uuid[], %(parents)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[])
     WITH ORDINALITY AS w (tenant_id, parent_id, scheduled_for, ordinal, i)
JOIN runs r ON r.tenant_id = w.tenant_id AND r.parent_id = w.parent_id
           AND r.scheduled_for = w.scheduled_for AND r.ordinal = w.ordinal
LEFT JOIN LATERAL (SELECT * FROM job_versions j WHERE r.spec IS NULL AND j.tenant_id = r.tenant_id
                   AND j.job_id = r.parent_id AND j.version = r.version OFFSET 0) AS v ON true
WHERE r.task_queue IS NOT NULL AND coalesce(r.spec, v.definition) IS NOT NULL;

-- name: pull_saw_queues
-- Queues that were polled just now (tenant_id, task_queue), with whether each had been told starved.
INSERT INTO task_queues AS q (tenant_id, task_queue, last_polled_at)
SELECT s.tenant_id, s.task_queue, clock_timestamp()
FROM unnest(%(tenants)s::uuid[], %(queues)s::text[]) AS s (tenant_id, task_queue)
JOIN tenants t ON t.tenant_id = s.tenant_id AND t.state = 'ACTIVE'
ORDER BY s.tenant_id, s.task_queue
ON CONFLICT (tenant_id, task_queue) DO UPDATE SET last_polled_at = excluded.last_polled_at
RETURNING q.tenant_id, q.task_queue, q.starved_at IS NOT NULL;

-- name: pull_recovered
-- Starved queues (tenant_id, task_queue) are polled again.
UPDATE task_queues q SET starved_at = NULL
FROM unnest(%(tenants)s::uuid[], %(queues)s::text[]) AS s (tenant_id, task_queue)
WHERE q.tenant_id = s.tenant_id AND q.task_queue = s.task_queue AND q.starved_at IS NOT NULL
RETURNING q.tenant_id, q.task_queue;

-- name: pull_saw_workers
-- Workers that polled or left just now (tenant_id, task_queue, worker, whether it left).
INSERT INTO task_workers (tenant_id, task_queue, worker_id, left_at)
SELECT s.tenant_id, s.task_queue, s.worker_id, CASE WHEN s.gone THEN clock_timestamp() END
FROM unnest(%(tenants)s::uuid[], %(queues)s::text[], %(workers)s::text[], %(gone)s::boolean[])
     AS s (tenant_id, task_queue, worker_id, gone)
JOIN tenants t ON t.tenant_id = s.tenant_id AND t.state = 'ACTIVE'
ORDER BY s.tenant_id, s.task_queue, s.worker_id
ON CONFLICT (tenant_id, task_queue, worker_id)
DO UPDATE SET last_seen_at = clock_timestamp(), left_at = excluded.left_at;

-- name: pull_queues
-- Queues of a tenant (tenant_id, perhaps one name): what waits, what is under way, who polls.
SELECT q.task_queue, (SELECT count(*) FROM (SELECT FROM runs r WHERE r.tenant_id = q.tenant_id
                          AND r.task_queue = q.task_queue AND r.state = 'READY' LIMIT %(limit)s) AS waiting)::int,
       (SELECT min(first.due_at) FROM generate_series(0, 3) AS class (priority) CROSS JOIN LATERAL (
            SELECT r.due_at FROM runs r WHERE r.tenant_id = q.tenant_id AND r.task_queue = q.task_queue
               AND r.state = 'READY' AND r.priority = class.priority ORDER BY r.due_at LIMIT 1) AS first),
       (SELECT count(*) FROM (SELECT FROM runs r WHERE r.tenant_id = q.tenant_id AND r.task_queue = q.task_queue
                          AND r.state = 'RUNNING' AND r.task_queue IS NOT NULL LIMIT %(limit)s) AS held)::int,
       (SELECT count(*) FROM task_workers w WHERE w.tenant_id = q.tenant_id AND w.task_queue = q.task_queue
           AND w.left_at IS NULL AND w.last_seen_at > now() - %(seen)s * interval '1 second')::int,
       q.last_polled_at, q.paused_at, q.created_at, now()
FROM task_queues q
WHERE q.tenant_id = %(tenant)s AND (%(name)s::text IS NULL OR q.task_queue = %(name)s)
ORDER BY q.task_queue LIMIT 1000;

-- name: pull_workers
-- Who polled a queue (tenant_id, task_queue), the latest first.
SELECT w.worker_id, w.first_seen_at, w.last_seen_at, w.left_at,
       (SELECT count(*) FROM runs r WHERE r.tenant_id = w.tenant_id AND r.task_queue = w.task_queue
           AND r.state = 'RUNNING' AND r.task_queue IS NOT NULL AND r.worker = w.worker_id)::int
FROM task_workers w WHERE w.tenant_id = %(tenant)s AND w.task_queue = %(queue)s
ORDER BY w.last_seen_at DESC, w.worker_id LIMIT %(limit)s;

-- name: pull_leases
-- What is under way of a queue (tenant_id, task_queue), the oldest claim first.
SELECT parent_id, scheduled_for, ordinal, worker, attempt, claimed_at, heartbeat_at,
       lease_end(lease_expires_at, heartbeat_at, lease_ms), progress::text
FROM runs WHERE tenant_id = %(tenant)s AND task_queue = %(queue)s AND state = 'RUNNING' AND task_queue IS NOT NULL
ORDER BY claimed_at LIMIT %(limit)s;

-- name: pull_pause
-- A queue (tenant_id, task_queue) hands out nothing more, or again.
INSERT INTO task_queues AS q (tenant_id, task_queue, paused_at)
VALUES (%(tenant)s, %(queue)s, CASE WHEN %(paused)s THEN clock_timestamp() END)
ON CONFLICT (tenant_id, task_queue) DO UPDATE SET paused_at = excluded.paused_at
WHERE (q.paused_at IS NULL) <> (excluded.paused_at IS NULL)
RETURNING task_queue;

-- name: pull_know_queues
-- Queues (tenant_id, task_queue) are there from their first task on.
INSERT INTO task_queues (tenant_id, task_queue)
SELECT tenant_id, task_queue FROM unnest(%(tenants)s::uuid[], %(queues)s::text[]) AS s (tenant_id, task_queue)
ORDER BY 1, 2
ON CONFLICT DO NOTHING;

-- name: pull_starved
-- Queues (of any active tenant_id) with a task that waits longer than people should wait, and that nobody
-- has polled for as long; each is told once. Those that somebody else holds are polled just now.
WITH starved AS MATERIALIZED (
    SELECT q.tenant_id, q.task_queue
    FROM task_queues q JOIN tenants t ON t.tenant_id = q.tenant_id AND t.state = 'ACTIVE'
    WHERE q.starved_at IS NULL AND q.paused_at IS NULL
      AND coalesce(q.last_polled_at, q.created_at) < now() - %(after)s * interval '1 second'
      AND EXISTS (SELECT FROM runs r WHERE r.tenant_id = q.tenant_id AND r.task_queue = q.task_queue
                  AND r.state = 'READY')
    ORDER BY q.tenant_id, q.task_queue
    FOR NO KEY UPDATE OF q SKIP LOCKED
)
UPDATE task_queues q SET starved_at = now()
FROM starved s
WHERE q.tenant_id = s.tenant_id AND q.task_queue = s.task_queue
RETURNING q.tenant_id, q.task_queue, q.last_polled_at;

-- name: status_leases
-- The leases of workers, of any active tenant_id, that end since a time: live, ended 5 s ago, the longest heartbeat
-- interval of those, how long ago anybody was heard of, and when the first of them ends.
SELECT count(*) FILTER (WHERE NOT over)::int, count(*) FILTER (WHERE over)::int,
       coalesce(max(lease_ms) FILTER (WHERE over), 0) / 3000.0,
       extract(epoch FROM clock_timestamp() - greatest(max(heartbeat_at),
           (SELECT w.last_seen_at FROM task_workers w ORDER BY w.last_seen_at DESC LIMIT 1)))::float8,
       min(lease_expires_at), clock_timestamp()
FROM (SELECT r.lease_ms, r.heartbeat_at, r.lease_expires_at,
             lease_end(r.lease_expires_at, r.heartbeat_at, r.lease_ms) < clock_timestamp() - interval '5 seconds' AS over
      FROM runs r JOIN tenants t ON t.tenant_id = r.tenant_id AND t.state = 'ACTIVE'
      WHERE r.host_id IS NULL AND r.lease_expires_at IS NOT NULL AND r.lease_expires_at >= %(since)s
        AND r.task_queue IS NOT NULL) AS leases;

-- name: pull_silent
-- Queues (of any active tenant_id) with claims whose workers are silent, and how many each.
SELECT r.tenant_id, r.task_queue, count(*)::int
FROM runs r JOIN tenants t ON t.tenant_id = r.tenant_id AND t.state = 'ACTIVE'
WHERE r.host_id IS NULL AND r.lease_expires_at < now() - interval '5 seconds'
  AND lease_end(r.lease_expires_at, r.heartbeat_at, r.lease_ms) < now() - interval '5 seconds'
GROUP BY 1, 2 ORDER BY 1, 2 LIMIT 1000;

-- name: pull_suspects
-- Runs (tenant_id, parent, instant, ordinal, epoch) whose worker was silent for its lease and 5 s more, the
-- oldest first; of any active tenant. From where the last look at the leases found the first one.
SELECT r.tenant_id, r.parent_id, r.scheduled_for, r.ordinal, r.epoch, coalesce(r.worker, '')
FROM runs r JOIN tenants t ON t.tenant_id = r.tenant_id AND t.state = 'ACTIVE'
WHERE r.host_id IS NULL AND r.lease_expires_at < now() - interval '5 seconds' AND r.lease_expires_at >= %(since)s
  AND lease_end(r.lease_expires_at, r.heartbeat_at, r.lease_ms) < now() - interval '5 seconds'
ORDER BY r.lease_expires_at LIMIT %(limit)s;

-- name: purge_workers
-- Workers (of any tenant_id) that nobody has heard of for long.
DELETE FROM task_workers WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM task_workers WHERE last_seen_at < now() - %(kept)s::interval
    ORDER BY last_seen_at LIMIT %(page)s FOR UPDATE SKIP LOCKED));
