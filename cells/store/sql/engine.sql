-- name: engine_hosts
-- Hosts that share the workflows, oldest first.
SELECT host_id FROM live_hosts WHERE 'engine' = ANY(roles) ORDER BY host_id;

-- name: engine_due
-- Executions of some shards (`mine`: shard by shard) that have something to record or to decide since a time, the
-- longest waiting first, with since when; of any tenant that is active here but some. (tenant_id, run_id), perhaps
-- twice. What was put off is passed over, whatever waits for it. No more words are looked at than may be taken: where
-- there are more, tenants take turns, each with executions that have words, without a time: twice as many of them as
-- are taken. Of those some, too, what somebody wants to stop.
WITH RECURSIVE words AS MATERIALIZED (
    SELECT tenant_id, run_id, shard, at FROM workflow_inbox WHERE at >= %(since)s ORDER BY at LIMIT %(items)s),
passed_over AS MATERIALIZED (
    SELECT tenant_id FROM tenants WHERE state <> 'ACTIVE'
    UNION ALL SELECT unnest(%(but_not)s::uuid[])),
put_off AS MATERIALIZED (
    SELECT tenant_id, run_id FROM workflows WHERE decide_at > statement_timestamp()),
speaking AS (
    (SELECT tenant_id FROM workflow_inbox
     WHERE (SELECT count(*) FROM words) >= %(items)s ORDER BY tenant_id LIMIT 1)
    UNION ALL
    SELECT n.tenant_id FROM speaking s CROSS JOIN LATERAL (
        SELECT tenant_id FROM workflow_inbox i WHERE i.tenant_id > s.tenant_id ORDER BY i.tenant_id LIMIT 1) AS n),
-- Each tenant's first execution, then each one's second: it goes on only until enough are found.
spoken_to AS (
    SELECT s.tenant_id, n.run_id
    FROM (SELECT tenant_id FROM speaking WHERE tenant_id NOT IN (SELECT tenant_id FROM passed_over)) AS s
    CROSS JOIN LATERAL (
        SELECT run_id FROM workflow_inbox i
        WHERE i.tenant_id = s.tenant_id AND (%(mine)s::boolean[])[i.shard + 1] ORDER BY i.run_id LIMIT 1) AS n
    UNION ALL
    SELECT s.tenant_id, n.run_id FROM spoken_to s CROSS JOIN LATERAL (
        SELECT run_id FROM workflow_inbox i
        WHERE i.tenant_id = s.tenant_id AND i.run_id > s.run_id AND (%(mine)s::boolean[])[i.shard + 1]
        ORDER BY i.run_id LIMIT 1) AS n)
SELECT tenant_id, run_id, at FROM words
WHERE (%(mine)s::boolean[])[shard + 1] AND tenant_id NOT IN (SELECT tenant_id FROM passed_over)
  AND (tenant_id, run_id) NOT IN (SELECT tenant_id, run_id FROM put_off)
UNION ALL
(SELECT tenant_id, run_id, NULL FROM spoken_to
 WHERE (tenant_id, run_id) NOT IN (SELECT tenant_id, run_id FROM put_off) LIMIT 2 * %(limit)s)
UNION ALL
(SELECT tenant_id, run_id, decide_at FROM workflows
 WHERE decide_at >= %(since)s AND decide_at <= statement_timestamp() AND (%(mine)s::boolean[])[shard + 1]
   AND tenant_id NOT IN (SELECT tenant_id FROM passed_over)
 ORDER BY decide_at LIMIT %(items)s)
UNION ALL
(SELECT tenant_id, run_id, timer_at FROM workflows
 WHERE timer_at >= %(since)s AND timer_at <= statement_timestamp() AND (%(mine)s::boolean[])[shard + 1]
   AND tenant_id NOT IN (SELECT tenant_id FROM passed_over)
 ORDER BY timer_at LIMIT %(items)s)
UNION ALL
(SELECT tenant_id, run_id, NULL FROM workflow_inbox
 WHERE kind IN ('CANCEL', 'TERMINATE', 'RESOLVE') AND (%(mine)s::boolean[])[shard + 1]
   AND tenant_id = ANY(%(but_not)s::uuid[])
   AND tenant_id NOT IN (SELECT tenant_id FROM tenants WHERE state <> 'ACTIVE')
   AND (tenant_id, run_id) NOT IN (SELECT tenant_id, run_id FROM put_off)
 ORDER BY position LIMIT %(limit)s);

-- name: engine_next_timer
-- The earliest timer of some shards (`mine`: shard by shard) from a time on, unless it is later than so many
-- milliseconds from now; of any tenant that is active here but some.
SELECT timer_at, tenant_id FROM workflows
WHERE timer_at >= %(since)s AND timer_at <= statement_timestamp() + %(within)s::bigint * interval '1 millisecond'
  AND (%(mine)s::boolean[])[shard + 1] AND tenant_id <> ALL(%(but_not)s::uuid[])
  AND tenant_id NOT IN (SELECT tenant_id FROM tenants WHERE state <> 'ACTIVE')
ORDER BY timer_at LIMIT 1;

-- name: engine_lock
-- Locks executions (tenant_id, run) whose tenants are active here; those somebody else holds are passed over.
SELECT w.i::int, f.run_id, f.workflow_id, f.shard, f.status, f.definition, f.version, f.input_hash, f.region_policy,
       f.next_seq, f.epoch, f.takeovers::text, f.decide_at, f.timer_at, f.history_bytes, f.parent::text, f.started_at,
       f.closed_at, f.result, f.error, f.holds_id, t.ownership_epoch, t.config::text, clock_timestamp()
FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[]) WITH ORDINALITY AS w (tenant_id, run_id, i)
JOIN tenants t ON t.tenant_id = w.tenant_id AND t.state = 'ACTIVE'
JOIN workflows f ON f.tenant_id = w.tenant_id AND f.run_id = w.run_id
FOR NO KEY UPDATE OF f SKIP LOCKED;

-- name: engine_strays
-- Words for executions (tenant_id, run) that are not there any more are for nobody; else they would be found for ever.
DELETE FROM workflow_inbox n
USING unnest(%(tenants)s::uuid[], %(runs)s::uuid[]) AS c (tenant_id, run_id)
WHERE n.tenant_id = c.tenant_id AND n.run_id = c.run_id
  AND NOT EXISTS (SELECT FROM workflows f WHERE f.tenant_id = c.tenant_id AND f.run_id = c.run_id)
RETURNING n.position;

-- name: engine_inbox
-- What waits to be recorded for executions (tenant_id, run), by position in the request. Data of the first row, and of
-- as many behind it as hold so many bytes together; of the others only that they are there.
SELECT i, position, kind, CASE WHEN upto <= %(bytes)s OR place = 1 THEN data END, at
FROM (SELECT w.i::int, b.position, b.kind, b.data, b.at, row_number() OVER together AS place,
             sum(octet_length(b.data)) OVER together AS upto
      FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[]) WITH ORDINALITY AS w (tenant_id, run_id, i)
      CROSS JOIN LATERAL (SELECT position, kind, data, at FROM workflow_inbox n
                          WHERE n.tenant_id = w.tenant_id AND n.run_id = w.run_id ORDER BY position LIMIT %(each)s) AS b
      WINDOW together AS (ORDER BY w.i, b.position ROWS UNBOUNDED PRECEDING)) AS waiting
ORDER BY i, position;

-- name: engine_histories
-- Whole histories of executions (tenant_id, run), by position in the request, in their order.
SELECT w.i::int, e.seq, e.type, e.at, e.data
FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[]) WITH ORDINALITY AS w (tenant_id, run_id, i)
JOIN workflow_events e ON e.tenant_id = w.tenant_id AND e.run_id = w.run_id
ORDER BY w.i, e.seq;

-- name: engine_advance
-- Moves the pointers of executions (tenant_id, run) that still are where they were read.
UPDATE workflows f
SET next_seq = c.next_seq, status = c.status, holds_id = f.holds_id AND c.open, version = c.version,
    epoch = c.epoch, decide_at = c.decide_at, timer_at = c.timer_at, history_bytes = c.history_bytes,
    takeovers = CASE WHEN c.epoch > f.epoch
                     THEN f.takeovers || jsonb_build_array(jsonb_build_array(c.epoch, f.next_seq)) ELSE f.takeovers END,
    closed_at = CASE WHEN c.open THEN NULL ELSE coalesce(f.closed_at, %(now)s) END, result = c.result, error = c.error,
    unsure = f.unsure OR c.unsure
FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[], %(read)s::int[], %(nexts)s::int[], %(statuses)s::text[],
            %(open)s::boolean[], %(versions)s::int[], %(epochs)s::bigint[], %(decides)s::timestamptz[],
            %(timers)s::timestamptz[], %(sizes)s::bigint[], %(results)s::bytea[], %(errors)s::text[],
            %(unsures)s::boolean[])
     AS c (tenant_id, run_id, read, next_seq, status, open, version, epoch, decide_at, timer_at, history_bytes, result, error,
           unsure)
WHERE f.tenant_id = c.tenant_id AND f.run_id = c.run_id AND f.next_seq = c.read;

-- name: engine_append
-- Appends events (tenant_id, run, sequence).
INSERT INTO workflow_events (tenant_id, run_id, seq, epoch, type, at, data)
SELECT * FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[], %(seqs)s::int[], %(epochs)s::bigint[], %(types)s::text[],
                     %(ats)s::timestamptz[], %(data)s::bytea[]);

-- name: engine_consume
-- What was recorded no longer waits (tenant_id, run, position).
DELETE FROM workflow_inbox n
USING unnest(%(tenants)s::uuid[], %(runs)s::uuid[], %(positions)s::bigint[]) AS c (tenant_id, run_id, position)
WHERE n.tenant_id = c.tenant_id AND n.run_id = c.run_id AND n.position = c.position;

-- name: engine_activities
-- The runs of activities (tenant_id, run, instant, sequence): READY for workers of a task queue, DUE for executors, or
-- if it is due later.
INSERT INTO runs (tenant_id, parent_id, scheduled_for, ordinal, kind, state, shard, priority, version, timer_at, due_at,
                  target_id, task_queue, input, spec)
SELECT tenant_id, run_id, scheduled_for, ordinal, 1, CASE WHEN task_queue IS NULL OR later THEN 'DUE' ELSE 'READY' END,
       shard, 2, version, CASE WHEN task_queue IS NULL OR later THEN due_at END, due_at, target_id, task_queue, input, spec
FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(shards)s::smallint[], %(versions)s::int[], %(dues)s::timestamptz[], %(later)s::boolean[],
            %(targets)s::text[], %(queues)s::text[], %(inputs)s::bytea[], %(specs)s::bytea[])
     AS c (tenant_id, run_id, scheduled_for, ordinal, shard, version, due_at, later, target_id, task_queue, input, spec);

-- name: engine_queues
-- Task queues (tenant_id, name) are there from their first task on.
INSERT INTO task_queues (tenant_id, task_queue)
SELECT tenant_id, task_queue FROM unnest(%(tenants)s::uuid[], %(queues)s::text[]) AS s (tenant_id, task_queue)
ORDER BY 1, 2
ON CONFLICT DO NOTHING;

-- name: engine_stop_activities
-- Activities that are no longer wanted (tenant_id, run, instant, sequence): CANCELLED where nobody has them, else
-- whoever has them is asked to stop.
UPDATE runs r
SET state = CASE WHEN r.state = 'RUNNING' THEN r.state ELSE 'CANCELLED' END,
    timer_at = CASE WHEN r.state = 'RUNNING' THEN r.timer_at END,
    finished_at = CASE WHEN r.state = 'RUNNING' THEN NULL ELSE clock_timestamp() END, cancel_requested = true
FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[])
     AS c (tenant_id, run_id, scheduled_for, ordinal)
WHERE r.tenant_id = c.tenant_id AND r.parent_id = c.run_id AND r.scheduled_for = c.scheduled_for
  AND r.ordinal = c.ordinal AND r.state IN ('DUE', 'READY', 'RUNNING', 'RETRY_WAIT');

-- name: engine_tell
-- Puts words into the inboxes of executions (tenant_id, run).
INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)
SELECT f.tenant_id, f.run_id, f.shard, c.kind, c.data
FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[], %(kinds)s::text[], %(data)s::bytea[]) WITH ORDINALITY
     AS c (tenant_id, run_id, kind, data, i)
JOIN workflows f ON f.tenant_id = c.tenant_id AND f.run_id = c.run_id
ORDER BY c.i;

-- name: engine_tell_latest
-- The same by workflow id (tenant_id, workflow_id), to the execution that holds it.
INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)
SELECT f.tenant_id, f.run_id, f.shard, c.kind, c.data
FROM unnest(%(tenants)s::uuid[], %(workflows)s::text[], %(kinds)s::text[], %(data)s::bytea[]) WITH ORDINALITY
     AS c (tenant_id, workflow_id, kind, data, i)
CROSS JOIN LATERAL (SELECT * FROM workflows h
                    WHERE h.tenant_id = c.tenant_id AND h.workflow_id = c.workflow_id AND h.holds_id LIMIT 1) AS f
ORDER BY c.i;

-- name: engine_forward
-- Words for executions (tenant_id, run) that go on in others: to the one of their chain that holds the id, else to the
-- latest behind them.
INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)
SELECT h.tenant_id, h.run_id, h.shard, c.kind, c.data
FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[], %(kinds)s::text[], %(data)s::bytea[]) WITH ORDINALITY
     AS c (tenant_id, run_id, kind, data, i)
JOIN workflows f ON f.tenant_id = c.tenant_id AND f.run_id = c.run_id
CROSS JOIN LATERAL (
    SELECT l.tenant_id, l.run_id, l.shard FROM workflows l
    WHERE l.tenant_id = f.tenant_id AND l.workflow_id = f.workflow_id AND l.workflow_id <> '' AND l.run_id <> f.run_id
      AND coalesce(l.chain, l.run_id) = coalesce(f.chain, f.run_id) AND l.started_at >= f.started_at
    ORDER BY l.holds_id DESC, l.started_at DESC, l.run_id DESC LIMIT 1) AS h
ORDER BY c.i;

-- name: engine_start
-- New executions (tenant_id, run) unless another one holds the id; the positions of those that began. Those that
-- follow another one are of its chain.
WITH begun AS (
    INSERT INTO workflows (tenant_id, run_id, workflow_id, shard, status, holds_id, definition, version, input_hash,
                           region_policy, next_seq, epoch, takeovers, decide_at, history_bytes, parent, started_at, chain)
    SELECT c.tenant_id, c.run_id, c.workflow_id, c.shard, 'RUNNING', true, c.definition, c.version, c.hash, c.policy,
           c.next_seq, c.epoch, jsonb_build_array(jsonb_build_array(c.epoch, 1)), %(now)s, c.size, c.parent::jsonb, %(now)s,
           coalesce(p.chain, p.run_id)
    FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[], %(workflows)s::text[], %(shards)s::smallint[],
                %(definitions)s::text[], %(versions)s::int[], %(hashes)s::bytea[], %(policies)s::text[],
                %(nexts)s::int[], %(epochs)s::bigint[], %(sizes)s::bigint[], %(parents)s::text[], %(follows)s::text[])
         AS c (tenant_id, run_id, workflow_id, shard, definition, version, hash, policy, next_seq, epoch, size, parent,
               follows)
    LEFT JOIN workflows p ON p.tenant_id = c.tenant_id AND p.run_id = c.follows::uuid
    ON CONFLICT (tenant_id, workflow_id) WHERE holds_id DO NOTHING
    RETURNING tenant_id, run_id)
SELECT c.i::int FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[]) WITH ORDINALITY AS c (tenant_id, run_id, i)
JOIN begun USING (tenant_id, run_id);

-- name: engine_letters
-- Executions that could not undo in time (tenant_id, run, instant, sequence) wait in the DLQ.
INSERT INTO dlq (tenant_id, parent_id, scheduled_for, ordinal, series, fingerprint, reason, target_id, error, attempt)
SELECT tenant_id, run_id, scheduled_for, ordinal, 1, fingerprint, 'COMPENSATION_STUCK', target_id, error, 0
FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[], %(instants)s::timestamptz[], %(ordinals)s::int[],
            %(fingerprints)s::text[], %(targets)s::text[], %(errors)s::text[])
     AS c (tenant_id, run_id, scheduled_for, ordinal, fingerprint, target_id, error);

-- name: workflow_put_word
-- One word for one execution (tenant_id, run); when it came, and its place.
INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)
SELECT f.tenant_id, f.run_id, f.shard, c.kind, c.data
FROM unnest(%(tenants)s::uuid[], %(runs)s::uuid[], %(kinds)s::text[], %(data)s::bytea[]) AS c (tenant_id, run_id, kind, data)
JOIN workflows f ON f.tenant_id = c.tenant_id AND f.run_id = c.run_id
RETURNING at, position;
