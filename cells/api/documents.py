"""How jobs, runs, targets and dead letters are shown: the one place that knows.

Documents are plain dicts for the JSON encoder. Payloads, and bodies that targets answered, are
shown only to callers who may read payloads; the others see that something is hidden.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec

from cells.domain import ids
from cells.domain.callbacks import ordinal_told_of
from cells.domain.job import (
    STATUS,
    Dialect,
    JobDefinition,
    JobState,
    Priority,
    Schedule,
    ScheduleType,
    TargetRef,
    TargetType,
)
from cells.domain.run import NEVER, TERMINAL, Attempt, RunKind
from cells.domain.schedule import to_local
from cells.ports import JobRow, RunRow, TargetRow

Document = dict[str, Any]

_MILLISECOND = timedelta(milliseconds=1)


def instant(value: datetime | None) -> str | None:
    """RFC 3339 in UTC; milliseconds only where there are any."""
    if value is None:
        return None
    precision = "milliseconds" if value.microsecond >= 1000 else "seconds"
    if value.tzinfo is not UTC:
        value = value.astimezone(UTC)
    return value.isoformat(timespec=precision)[: -len("+00:00")] + "Z"


def raw(json: bytes | None) -> msgspec.Raw | None:
    """JSON as it is stored."""
    return None if json is None else msgspec.Raw(json)


def job_text(job_id: uuid.UUID) -> str:
    """A job's id as its owner sees it; of an activity, the execution of the workflow it belongs to."""
    return ids.encode(ids.WORKFLOW_RUN if ids.is_workflow_run(job_id) else ids.JOB, job_id)


# --- jobs --------------------------------------------------------------------------------
def schedule_document(schedule: Schedule) -> Document:
    """A schedule, with what was left to the defaults."""
    shown: Document = {"type": schedule.type}
    for name in ("run_at", "cron", "every_seconds", "time_zone", "start_at", "end_at"):
        value = getattr(schedule, name)
        if value is not None:
            shown[name] = value
    if schedule.dialect is not Dialect.UNIX:
        shown["dialect"] = schedule.dialect
    if schedule.calendar is not None:
        shown |= {"calendar": schedule.calendar, "roll": schedule.roll}
    if schedule.type in (ScheduleType.ONCE, ScheduleType.CRON):
        shown["dst"] = {"gap": schedule.dst.gap, "overlap": schedule.dst.overlap}
    return shown


def definition_document(definition: JobDefinition) -> Document:
    """The fields of a job that a client may set (but the payload), as it would send them."""
    retry = definition.retry_policy
    return {
        "key": definition.key,
        "name": definition.name,
        "tags": definition.tags,
        "schedule": schedule_document(definition.schedule),
        "target": job_target_document(definition.target),
        "headers": definition.headers,
        "retry_policy": {
            "max_attempts": retry.max_attempts,
            "initial_backoff_seconds": retry.initial_backoff_seconds,
            "max_backoff_seconds": retry.max_backoff_seconds,
        },
        "priority": definition.priority.name,
        "dispatch_window_seconds": definition.dispatch_window_seconds,
        "misfire_policy": definition.misfire_policy,
        "misfire_grace_seconds": definition.misfire_grace_seconds,
        "overlap_policy": definition.overlap_policy,
        "region_policy": definition.region_policy,
        "delivery": definition.delivery,
        "concurrency_key": definition.concurrency_key,
        "max_concurrent": definition.max_concurrent if definition.concurrency_key is not None else None,
        "on_success": _callback(definition.on_success),
        "on_failure": _callback(definition.on_failure),
    }


def _callback(target: TargetRef | None) -> Document | None:
    return None if target is None else {"target_id": target.target_id, "path": target.path}


def job_target_document(target: TargetRef) -> Document:
    """Where a job's runs go."""
    if target.type == TargetType.TASK_QUEUE:
        return {
            "type": target.type,
            "task_queue": target.task_queue,
            "lease_seconds": target.lease_seconds,
        }
    if target.type == TargetType.WORKFLOW:
        return {
            "type": target.type,
            "definition": target.definition,
            "version": target.definition_version,
            "wait": target.wait,
        }
    return {
        "type": target.type,
        "target_id": target.target_id,
        "path": target.path,
        "method": target.method,
        "timeout_seconds": target.timeout_seconds,
    }


def job_document(
    *,
    job_id: uuid.UUID,
    definition: JobDefinition,
    state: JobState,
    version: int,
    next_run_at: datetime | None,
    due_at: datetime | None,
    created_at: datetime,
    updated_at: datetime,
) -> Document:
    """A job without its payload."""
    waits = state is JobState.ACTIVE and next_run_at is not None
    zone = definition.schedule.time_zone
    return {
        "job_id": job_text(job_id),
        "status": STATUS[state],
        "version": version,
        "next_run_at": instant(next_run_at) if waits else None,
        "next_run_local": to_local(next_run_at, zone) if waits and next_run_at is not None else None,
        "due_at": instant(due_at) if waits else None,
        **definition_document(definition),
        "created_at": instant(created_at),
        "updated_at": instant(updated_at),
    }


def job_row_document(row: JobRow, *, payload_shown: bool) -> Document:
    """A job as stored."""
    document = job_document(
        job_id=row.job_id,
        definition=row.definition,
        state=row.state,
        version=row.version,
        next_run_at=row.next_run_at,
        due_at=row.due_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
    if payload_shown:
        document["payload"] = msgspec.Raw(row.payload) if row.payload is not None else None
    else:
        document["payload_hidden"] = True
    return document


def recent_run(row: RunRow) -> Document:
    """A run as its job's page lists it."""
    return {
        "run_id": ids.run_id(row.key),
        "scheduled_for": instant(row.key.scheduled_for),
        "attempt": row.attempt,
        "outcome": row.state if row.state in TERMINAL else None,
        "finished_at": instant(row.finished_at),
        "state": row.state,
    }


# --- runs --------------------------------------------------------------------------------
def run_document(row: RunRow, *, bodies_shown: bool) -> Document:
    """A run with its attempts."""
    run_id = ids.run_id(row.key)
    return {
        "run_id": run_id,
        "job_id": job_text(row.key.parent_id),
        "scheduled_for": instant(row.key.scheduled_for),
        "kind": RunKind(row.kind).name,
        "callback_of": callback_of(row),
        "state": row.state,
        "outcome": row.state if row.state in TERMINAL else None,
        "attempt": row.attempt,
        "series": row.series,
        "epoch": row.epoch,
        "version": row.version,
        "priority": Priority(row.priority).name,
        "target_id": row.target_id,
        "http_status": row.http_status,
        "reason": row.reason,
        "skipped": row.skipped,
        "due_at": instant(row.due_at),
        "released_at": instant(row.released_at),
        "claimed_at": instant(row.claimed_at),
        "started_at": instant(row.started_at),
        "finished_at": instant(row.finished_at),
        "cancel_requested": row.cancel_requested,
        "worker_id": row.worker,
        "heartbeat_at": instant(row.heartbeat_at),
        "lease_expires_at": instant(row.lease_expires_at),
        **({"progress": raw(row.progress)} if bodies_shown else {}),
        "next_attempt_at": instant(row.timer_at) if row.timer_at != NEVER else None,
        "attempts": [_attempt(attempt, bodies_shown=bodies_shown) for attempt in row.attempts],
        "idempotency_key": run_id,
        "where_the_time_went": time_split(row),
    }


def callback_of(row: RunRow) -> str | None:
    """The run that a callback tells of."""
    if row.kind != RunKind.CALLBACK:
        return None
    about = msgspec.structs.replace(row.key, ordinal=ordinal_told_of(row.key.ordinal))
    return ids.run_id(about)


def callback_document(row: RunRow) -> Document:
    """A callback, where the run is shown that it tells of."""
    return {
        "run_id": ids.run_id(row.key),
        "target_id": row.target_id,
        "state": row.state,
        "attempt": row.attempt,
        "http_status": row.http_status,
        "finished_at": instant(row.finished_at),
    }


def _attempt(attempt: Attempt, *, bodies_shown: bool) -> Document:
    shown: Document = {
        "number": attempt.number,
        "series": attempt.series,
        "epoch": attempt.epoch,
        "outcome": attempt.outcome,
        "claimed_at": attempt.claimed_at,
        "started_at": attempt.started_at,
        "finished_at": attempt.finished_at,
        "host": attempt.host,
        "status": attempt.status,
        "error": attempt.error,
        "retry_in_ms": attempt.retry_in_ms,
    }
    if bodies_shown:
        shown["body"] = attempt.body
    elif attempt.body is not None:
        shown["body_hidden"] = True
    return shown


def time_split(row: RunRow) -> Document:
    """Where a run's time went, in milliseconds; null for what has not happened (yet).

    The last four are those of its last attempt; what went by in earlier attempts and in
    waiting between them is `retries_ms`, but for what it lay in the dead-letter queue.
    """
    ready = _ready_at(row)
    dead = _dead_letter_ms(row)
    retries = _ms(row.due_at, ready)
    return {
        "window_ms": _ms(row.key.scheduled_for, row.due_at),
        "retries_ms": retries if retries is None else max(0, retries - (dead or 0)),
        "dead_letter_ms": dead,
        "quota_ms": _ms(ready, row.released_at),
        "queue_ms": _ms(row.released_at, row.claimed_at),
        "slot_ms": _ms(row.claimed_at, row.started_at),
        "run_ms": _ms(row.started_at, row.finished_at or _last_end(row.attempts, row.started_at)),
    }


def _ready_at(row: RunRow) -> datetime:
    """When the last attempt could have begun."""
    earlier = [a for a in row.attempts if row.claimed_at is None or _parsed(a.finished_at) <= row.claimed_at]
    if not earlier:
        return row.due_at
    last = earlier[-1]
    ended = _parsed(last.finished_at)
    if last.series < row.series:
        # It was redriven: until then it waited for people, and no quota held it.
        return max(row.due_at, ended, row.released_at or ended)
    return max(row.due_at, ended + timedelta(milliseconds=last.retry_in_ms or 0))


def _dead_letter_ms(row: RunRow) -> int | None:
    """Between the end of a series of attempts and the release of the next one, all of them together."""
    if row.series == 1 or not row.attempts:
        return None
    total = 0
    released = row.released_at  # of the last claim
    for before, after in pairwise(row.attempts):
        if before.series < after.series:
            ended, claimed = _parsed(before.finished_at), _parsed(after.claimed_at)
            known = released is not None and ended <= released <= claimed
            total += _ms(ended, released if known else claimed) or 0
    last = row.attempts[-1]
    if last.series < row.series:
        total += _ms(_parsed(last.finished_at), released) or 0
    return total


def _last_end(attempts: Sequence[Attempt], started: datetime | None) -> datetime | None:
    if not attempts or started is None:
        return None
    ended = _parsed(attempts[-1].finished_at)
    return ended if ended >= started else None


def _parsed(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _ms(since: datetime | None, until: datetime | None) -> int | None:
    if since is None or until is None:
        return None
    return max(0, (until - since) // _MILLISECOND)


# --- targets -----------------------------------------------------------------------------
def target_document(row: TargetRow) -> Document:
    """A target; nothing secret."""
    return {
        "target_id": row.target_id,
        "state": row.state,
        "version": row.version,
        "base_url": row.base_url,
        "owner_team": row.owner_team,
        "description": row.description,
        "max_concurrency": row.max_concurrency,
        "initial_concurrency": row.initial_concurrency,
        "latency_slo_ms": row.latency_slo_ms,
        "auth": row.auth,
        "drill": row.settings.get("drill"),
        "created_by": row.created_by,
        "created_at": instant(row.created_at),
        "updated_at": instant(row.updated_at),
        "approved_by": row.approved_by,
        "approved_at": instant(row.approved_at),
    }
