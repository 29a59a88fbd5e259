-- name: definition_put
-- Registers a version (tenant_id, name, version) unless there is one.
INSERT INTO workflow_definitions (tenant_id, name, version, source, created_by)
VALUES (%(tenant)s, %(name)s, %(version)s, %(source)s, %(actor)s)
ON CONFLICT DO NOTHING;

-- name: definition_get
-- One version (tenant_id, name, version), or the newest of that name.
SELECT name, version, source, created_by, created_at FROM workflow_definitions
WHERE tenant_id = %(tenant)s AND name = %(name)s AND (%(version)s::int IS NULL OR version = %(version)s)
ORDER BY version DESC LIMIT 1;

-- name: definition_list
-- Versions of a tenant (tenant_id, perhaps one name) by name, the newest first.
SELECT name, version, source, created_by, created_at FROM workflow_definitions
WHERE tenant_id = %(tenant)s AND (%(name)s::text IS NULL OR name = %(name)s)
  AND (%(after_name)s::text IS NULL OR name > %(after_name)s OR (name = %(after_name)s AND version < %(after_version)s))
ORDER BY name, version DESC LIMIT %(limit)s;

-- name: definition_sources
-- Texts of some versions (tenant_id, name, version), by position; version 0 is the newest of its name.
SELECT w.i::int, d.version, d.source
FROM unnest(%(tenants)s::uuid[], %(names)s::text[], %(versions)s::int[]) WITH ORDINALITY AS w (tenant_id, name, version, i)
CROSS JOIN LATERAL (
    SELECT d.version, d.source FROM workflow_definitions d
    WHERE d.tenant_id = w.tenant_id AND d.name = w.name AND (w.version = 0 OR d.version = w.version)
    ORDER BY d.version DESC LIMIT 1) AS d;

-- name: workflow_latest
-- The execution that a workflow id means (tenant_id, workflow_id): the one that holds it, else the latest.
SELECT run_id, workflow_id, shard, status, definition, version, input_hash, region_policy, next_seq, epoch,
       takeovers::text, decide_at, timer_at, history_bytes, parent::text, started_at, closed_at, result, error
FROM workflows WHERE tenant_id = %(tenant)s AND workflow_id = %(workflow)s AND workflow_id <> ''
ORDER BY holds_id DESC, started_at DESC, run_id DESC LIMIT 1;

-- name: workflow_latest_of
-- The same for several (tenant_id, workflow_id), by position; those that mean none are left out.
SELECT w.i::int, f.run_id, f.workflow_id, f.shard, f.status, f.definition, f.version, f.input_hash, f.region_policy,
       f.next_seq, f.epoch, f.takeovers::text, f.decide_at, f.timer_at, f.history_bytes, f.parent::text, f.started_at,
       f.closed_at, f.result, f.error
FROM unnest(%(tenants)s::uuid[], %(workflows)s::text[]) WITH ORDINALITY AS w (tenant_id, workflow_id, i)
CROSS JOIN LATERAL (SELECT * FROM workflows l
                    WHERE l.tenant_id = w.tenant_id AND l.workflow_id = w.workflow_id AND l.workflow_id <> ''
                    ORDER BY l.holds_id DESC, l.started_at DESC, l.run_id DESC LIMIT 1) AS f;

-- name: workflow_get
-- One execution (tenant_id, run).
SELECT run_id, workflow_id, shard, status, definition, version, input_hash, region_policy, next_seq, epoch,
       takeovers::text, decide_at, timer_at, history_bytes, parent::text, started_at, closed_at, result, error
FROM workflows WHERE tenant_id = %(tenant)s AND run_id = %(run)s;

-- name: workflow_lock_latest
-- Locks the execution a workflow id means (tenant_id, workflow_id) for one that will append to it.
SELECT run_id FROM workflows WHERE tenant_id = %(tenant)s AND workflow_id = %(workflow)s AND workflow_id <> ''
ORDER BY holds_id DESC, started_at DESC, run_id DESC LIMIT 1 FOR NO KEY UPDATE;

-- name: workflow_share_latest
-- Keeps the execution a workflow id means (tenant_id, workflow_id) from being appended to: what is put into
-- its inbox now is behind everything recorded so far.
SELECT run_id FROM workflows WHERE tenant_id = %(tenant)s AND workflow_id = %(workflow)s AND workflow_id <> ''
ORDER BY holds_id DESC, started_at DESC, run_id DESC LIMIT 1 FOR SHARE;

-- name: workflow_share
-- Keeps one execution (tenant_id, run) of a workflow id from being appended to.
SELECT run_id FROM workflows
WHERE tenant_id = %(tenant)s AND workflow_id = %(workflow)s AND run_id = %(run)s FOR SHARE;

-- name: workflow_used_of
-- Ids (tenant_id, workflow_id) whose executions have left, by position: what the latest one of each was.
SELECT w.i::int, u.run_id, u.input_hash, u.definition, u.version, u.status, u.started_at, u.closed_at
FROM unnest(%(tenants)s::uuid[], %(workflows)s::text[]) WITH ORDINALITY AS w (tenant_id, workflow_id, i)
JOIN workflow_ids_used u ON u.tenant_id = w.tenant_id AND u.workflow_id = w.workflow_id;

-- name: cell_clock
-- The clock that everything of executions goes by.
SELECT clock_timestamp();

-- name: workflow_has_left
-- Whether executions of an id (tenant_id, workflow_id) have left for the lake.
SELECT run_id FROM workflow_ids_used WHERE tenant_id = %(tenant)s AND workflow_id = %(workflow)s;

-- name: workflow_list
-- Executions of a tenant, the latest start first; what has no index is looked for among the next `looks`.
SELECT run_id, workflow_id, shard, status, definition, version, input_hash, region_policy, next_seq, epoch,
       takeovers::text, decide_at, timer_at, history_bytes, parent::text, started_at, closed_at, result, error
FROM (SELECT * FROM workflows
      WHERE tenant_id = %(tenant)s AND started_at > '-infinity'
        AND (%(after_at)s::timestamptz IS NULL OR (started_at, run_id) < (%(after_at)s, %(after_run)s::uuid))
      ORDER BY started_at DESC, run_id DESC LIMIT %(looks)s) AS w
WHERE (%(status)s::text IS NULL OR status = %(status)s)
  AND (%(definition)s::text IS NULL OR definition = %(definition)s)
  AND (%(version)s::int IS NULL OR version = %(version)s)
  AND (%(prefix)s::text IS NULL OR starts_with(workflow_id, %(prefix)s))
ORDER BY started_at DESC, run_id DESC LIMIT %(limit)s;

-- name: workflow_open
-- Open executions of a definition (tenant_id) by workflow id, among the next `looks` that hold their ids; and those that
-- had ended and undo again what was done late, whose ids may be others' now.
WITH held AS MATERIALIZED (
    SELECT * FROM workflows
    WHERE tenant_id = %(tenant)s AND holds_id
      AND (%(after_id)s::text IS NULL OR workflow_id >= %(after_id)s)
      AND (%(after_id)s::text IS NULL OR workflow_id > %(after_id)s OR run_id > %(after_run)s::uuid)
    ORDER BY workflow_id LIMIT %(looks)s
),
again AS MATERIALIZED (
    SELECT * FROM workflows WHERE tenant_id = %(tenant)s AND (unsure OR status = 'COMPENSATION_STUCK')
    ORDER BY started_at DESC, run_id DESC LIMIT %(looks)s
),
edge AS (SELECT max(workflow_id) AS last FROM held HAVING count(*) = %(looks)s)
SELECT w.run_id, w.workflow_id, w.shard, w.status, w.definition, w.version, w.input_hash, w.region_policy, w.next_seq,
       w.epoch, w.takeovers::text, w.decide_at, w.timer_at, w.history_bytes, w.parent::text, w.started_at, w.closed_at,
       w.result, w.error
FROM (SELECT * FROM held UNION ALL SELECT * FROM again WHERE closed_at IS NULL AND NOT holds_id) AS w
LEFT JOIN edge ON true
WHERE w.definition = %(definition)s AND (edge.last IS NULL OR w.workflow_id <= edge.last)
  AND (%(after_id)s::text IS NULL OR (w.workflow_id, w.run_id) > (%(after_id)s, %(after_run)s::uuid))
ORDER BY w.workflow_id, w.run_id LIMIT %(limit)s;

-- name: workflow_open_reached
-- The last id that `workflow_open` looks at (tenant_id); none where it sees the end.
SELECT workflow_id FROM workflows
WHERE tenant_id = %(tenant)s AND holds_id
  AND (%(after_id)s::text IS NULL OR workflow_id >= %(after_id)s)
  AND (%(after_id)s::text IS NULL OR workflow_id > %(after_id)s OR run_id > %(after_run)s::uuid)
ORDER BY workflow_id OFFSET %(looks)s - 1 LIMIT 1;

-- name: workflow_open_count
-- How many executions of a tenant (tenant_id) hold their ids, as far as `looks` of them; those of one definition.
SELECT count(*)::int, count(*) FILTER (WHERE definition = %(definition)s)::int
FROM (SELECT definition FROM workflows WHERE tenant_id = %(tenant)s AND holds_id LIMIT %(looks)s) AS w;

-- name: workflow_list_to_reconcile
-- Executions of a tenant that are stuck, or undid what may not have happened, the latest start first.
SELECT run_id, workflow_id, shard, status, definition, version, input_hash, region_policy, next_seq, epoch,
       takeovers::text, decide_at, timer_at, history_bytes, parent::text, started_at, closed_at, result, error
FROM workflows
WHERE tenant_id = %(tenant)s AND (unsure OR status = 'COMPENSATION_STUCK')
  AND (%(after_at)s::timestamptz IS NULL OR (started_at, run_id) < (%(after_at)s, %(after_run)s::uuid))
ORDER BY started_at DESC, run_id DESC LIMIT %(limit)s;

-- name: workflow_list_reached
-- The last execution that `workflow_list` looks at (tenant_id); none where it sees the end of the list.
SELECT started_at, run_id FROM workflows
WHERE tenant_id = %(tenant)s AND started_at > '-infinity'
  AND (%(after_at)s::timestamptz IS NULL OR (started_at, run_id) < (%(after_at)s, %(after_run)s::uuid))
ORDER BY started_at DESC, run_id DESC OFFSET %(looks)s - 1 LIMIT 1;

-- name: workflow_history
-- Events of an execution (tenant_id, run) behind a sequence, in their order.
SELECT seq, epoch, type, at, data FROM workflow_events
WHERE tenant_id = %(tenant)s AND run_id = %(run)s AND seq > %(after)s
ORDER BY seq LIMIT %(limit)s;

-- name: workflow_runs_of
-- The runs of an execution's activities (tenant_id, run), as its timeline needs them.
SELECT ordinal, scheduled_for, state, attempt, claimed_at, started_at, finished_at, timer_at
FROM runs WHERE tenant_id = %(tenant)s AND parent_id = %(run)s AND kind = 1
ORDER BY ordinal LIMIT 10000;

-- name: workflow_signal_put
-- Notes a signal (tenant_id, workflow_id, signal_id) for an execution unless its chain took it before; one that an
-- earlier workflow of that id took is another signal.
INSERT INTO workflow_signals AS s (tenant_id, workflow_id, signal_id, name, payload_hash, run_id)
SELECT f.tenant_id, f.workflow_id, %(signal)s, %(name)s, %(hash)s, coalesce(f.chain, f.run_id)
FROM workflows f WHERE f.tenant_id = %(tenant)s AND f.run_id = %(run)s
ON CONFLICT (tenant_id, workflow_id, signal_id) DO UPDATE
SET name = excluded.name, payload_hash = excluded.payload_hash, run_id = excluded.run_id, at = clock_timestamp()
WHERE s.run_id <> excluded.run_id
RETURNING signal_id;

-- name: workflow_signal_get
-- A signal that the chain of an execution took before (tenant_id, workflow_id, signal_id).
SELECT s.name, s.payload_hash
FROM workflow_signals s
JOIN workflows f ON f.tenant_id = s.tenant_id AND f.run_id = %(run)s AND coalesce(f.chain, f.run_id) = s.run_id
WHERE s.tenant_id = %(tenant)s AND s.workflow_id = %(workflow)s AND s.signal_id = %(signal)s;

-- name: workflow_waits
-- What tells whether a signal comes late (tenant_id, run); signals, if they are asked for.
SELECT seq, type, data FROM workflow_events
WHERE tenant_id = %(tenant)s AND run_id = %(run)s
  AND (type IN ('WAIT_STARTED', 'TIMER_FIRED', 'COMPENSATION_STARTED') OR (%(signals)s AND type = 'SIGNAL_RECEIVED'))
ORDER BY seq;

-- name: workflow_waiting
-- How much waits to be recorded for an execution (tenant_id, run), counted to a limit, and its bytes.
SELECT count(*)::int, coalesce(sum(octet_length(data)), 0)::bigint
FROM (SELECT data FROM workflow_inbox WHERE tenant_id = %(tenant)s AND run_id = %(run)s LIMIT %(limit)s) AS waiting;

-- name: workflow_waiting_signals
-- Signals that wait to be recorded for an execution (tenant_id, run) before a place, in their order.
SELECT data, at FROM workflow_inbox
WHERE tenant_id = %(tenant)s AND run_id = %(run)s AND kind = 'SIGNAL' AND position < %(position)s
ORDER BY at, position;

-- name: workflow_letters_close
-- Dead letters of an execution that was stuck (tenant_id, run) are dealt with.
UPDATE dlq SET state = 'PURGED'
WHERE tenant_id = %(tenant)s AND parent_id = %(run)s AND reason = 'COMPENSATION_STUCK' AND state = 'OPEN';
