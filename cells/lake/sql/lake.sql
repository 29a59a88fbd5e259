-- name: lake_digest
-- How many runs some files hold, and the sum of their fingerprints (tenant_id first), as the store adds
-- them up in `lake_check_page`.
SELECT count(*) AS runs, coalesce(sum(('0x' || left(md5(concat_ws('|', tenant_id, parent_id, epoch(scheduled_for)::BIGINT, ordinal,
                                                          series, epoch, state)), 15))::BIGINT), 0)::VARCHAR AS digest
FROM read_parquet($files, union_by_name = true);

-- name: lake_runs
-- A page of one tenant's runs (tenant_id) in some files that hold each run once, newest scheduled first.
SELECT * FROM read_parquet($files, union_by_name = true)
WHERE tenant_id = $tenant
  AND ($parent IS NULL OR parent_id = $parent)
  AND ($exact::BOOLEAN IS NOT TRUE OR (scheduled_for = $at AND ordinal = $ordinal))
  AND ($from IS NULL OR scheduled_for >= $from) AND ($until IS NULL OR scheduled_for < $until)
  AND ($exact::BOOLEAN IS TRUE OR $at IS NULL
       OR (scheduled_for, parent_id, ordinal) < ($at, $after_parent, $ordinal))
  AND ($states::VARCHAR[] IS NULL OR list_contains($states::VARCHAR[], state)) AND ($target IS NULL OR target_id = $target)
  AND ($due_from IS NULL OR due_at >= $due_from) AND ($due_until IS NULL OR due_at < $due_until)
  AND ($finished_from IS NULL OR finished_at >= $finished_from)
  AND ($finished_until IS NULL OR finished_at < $finished_until)
ORDER BY scheduled_for DESC, parent_id DESC, ordinal DESC LIMIT $limit;

-- name: lake_latest_runs
-- The same where a run may be in several files (tenant_id): its last state counts.
SELECT * EXCLUDE (latest) FROM (
    SELECT *, row_number() OVER (PARTITION BY parent_id, scheduled_for, ordinal ORDER BY series DESC, epoch DESC,
                                 finished_at DESC) AS latest
    FROM read_parquet($files, union_by_name = true)
    WHERE tenant_id = $tenant
      AND ($parent IS NULL OR parent_id = $parent)
      AND ($exact::BOOLEAN IS NOT TRUE OR (scheduled_for = $at AND ordinal = $ordinal))
      AND ($from IS NULL OR scheduled_for >= $from) AND ($until IS NULL OR scheduled_for < $until)
      AND ($exact::BOOLEAN IS TRUE OR $at IS NULL
           OR (scheduled_for, parent_id, ordinal) < ($at, $after_parent, $ordinal))
) AS r
WHERE latest = 1 AND ($states::VARCHAR[] IS NULL OR list_contains($states::VARCHAR[], state)) AND ($target IS NULL OR target_id = $target)
  AND ($due_from IS NULL OR due_at >= $due_from) AND ($due_until IS NULL OR due_at < $due_until)
  AND ($finished_from IS NULL OR finished_at >= $finished_from)
  AND ($finished_until IS NULL OR finished_at < $finished_until)
ORDER BY scheduled_for DESC, parent_id DESC, ordinal DESC LIMIT $limit;

-- name: lake_workflow
-- One execution of a tenant (tenant_id): the latest of a workflow id, or a certain one; as it last was.
SELECT * FROM read_parquet($files, union_by_name = true)
WHERE tenant_id = $tenant AND workflow_id = $workflow AND ($run IS NULL OR run_id = $run)
ORDER BY started_at DESC, run_id DESC, seq DESC LIMIT 1;

-- name: lake_workflow_list
-- Executions of a tenant (tenant_id), the latest start first, behind a place: of each the row of its last event.
SELECT * FROM read_parquet($files, union_by_name = true)
WHERE tenant_id = $tenant AND seq = events
  AND ($status IS NULL OR status = $status) AND ($definition IS NULL OR definition = $definition)
  AND ($version IS NULL OR definition_version = $version) AND ($prefix IS NULL OR starts_with(workflow_id, $prefix))
  AND ($after_at IS NULL OR started_at < $after_at OR (started_at = $after_at AND run_id < $after_run))
ORDER BY started_at DESC, run_id DESC LIMIT $limit;

-- name: lake_workflow_events
-- Events of an execution (tenant_id, run) behind a sequence.
SELECT seq, any_value(epoch) AS epoch, any_value(type) AS type, any_value("at") AS "at", any_value(data) AS data
FROM read_parquet($files, union_by_name = true)
WHERE tenant_id = $tenant AND run_id = $run AND seq > $after
GROUP BY seq ORDER BY seq LIMIT $limit;
