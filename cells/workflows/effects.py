"""What belongs to an event: the run of an activity, a child, a word to others. Pure."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from cells.domain import ids
from cells.domain.ids import RunKey
from cells.domain.job import (
    HOME_ASYNC,
    MAX_LEASE_SECONDS,
    MIN_LEASE_SECONDS,
    SINGLE_REGION,
    JobDefinition,
    RetryPolicy,
    Schedule,
    ScheduleType,
    TargetRef,
    TargetType,
)
from cells.domain.job import Activity as Identity
from cells.domain.run import LEASE_MARGIN_MS
from cells.domain.workflow.commands import Command
from cells.domain.workflow.definition import Activity
from cells.domain.workflow.events import Event, EventType
from cells.domain.workflow.execution import Execution, Status
from cells.workflow_ports import NewActivity, NewExecution, Taken

_encode = msgspec.json.Encoder().encode


def activity_of(execution: Execution, command: Command, event: Event, region_policy: str) -> NewActivity:
    """The run of an activity that was just scheduled."""
    step = command.step
    if step is None or not isinstance(step.do, Activity):
        raise TypeError(f"{command.key} is no activity")
    do, data = step.do, event.data
    if do.task_queue is not None:
        target = TargetRef(
            type=TargetType.TASK_QUEUE.value, task_queue=do.task_queue, lease_seconds=lease_seconds(do)
        )
    else:
        target = TargetRef(
            target_id=do.target_id or "", path=do.path, method=do.method, timeout_seconds=_seconds(do)
        )
    spec = JobDefinition(
        schedule=Schedule(type=ScheduleType.NOW),
        target=target,
        retry_policy=RetryPolicy(
            max_attempts=do.retry.max_attempts,
            initial_backoff_seconds=do.retry.initial_ms / 1000,
            max_backoff_seconds=do.retry.max_ms / 1000,
        ),
        region_policy=region_policy,
        activity=Identity(
            workflow_id=execution.workflow_id,
            step=command.key,
            key=data["key"],
            type=do.type or "",
            forward_key=data.get("forward_key") or "",
        ),
    )
    return NewActivity(
        at_ms=event.at,
        due_ms=max(event.at, data.get("not_before") or 0),
        seq=event.seq,
        version=execution.version,
        spec=spec,
        input=_encode(data.get("input")),
    )


def _seconds(do: Activity) -> int:
    return -(-do.timeout_ms // 1000)


def lease_seconds(do: Activity) -> int:
    """For how long a claim of its run holds, without a heartbeat."""
    if do.task_queue is None:
        return _seconds(do) + LEASE_MARGIN_MS // 1000
    return min(max(_seconds(do), MIN_LEASE_SECONDS), MAX_LEASE_SECONDS)


def input_hash(definition: str, version: int | None, given: Any) -> bytes:
    """What makes two starts the same."""
    return hashlib.sha256(_encode([definition, version, _sorted(given)])).digest()


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return [[name, _sorted(value[name])] for name in sorted(value)]
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def execution_of(
    *,
    run_id: uuid.UUID,
    workflow_id: str,
    definition: str,
    version: int,
    region_policy: str,
    given: Any,
    hash_: bytes,
    at_ms: int,
    first: bool = True,
    parent: Mapping[str, Any] | None = None,
    reuse: bool = True,
) -> NewExecution:
    """An execution with its first event."""
    started = {
        "workflow_id": workflow_id,
        "run_id": ids.encode(ids.WORKFLOW_RUN, run_id),
        "definition": definition,
        "version": version,
        "input": given,
    }
    if not first:
        started["first"] = False
    if parent is not None:
        started["parent"] = parent
    return NewExecution(
        run_id=run_id,
        workflow_id=workflow_id,
        definition=definition,
        version=version,
        input_hash=hash_,
        region_policy=region_policy,
        parent=parent,
        events=[(EventType.STARTED.value, at_ms, _encode(started))],
        reuse=reuse,
    )


def derived_run(taken: Taken, seq: int) -> uuid.UUID:
    """The id of an execution that an event begins: the same whoever records it."""
    row = taken.row
    key = f"execution:{row.run_id.hex}:{seq}"
    store = ids.store_of(row.run_id)  # children are kept where their parent is
    return ids.workflow_run_id(ids.derived_id(tenant_id=row.tenant_id, key=key, store=store))


def inherited(policy: str, own: str) -> str:
    """The region policy of what is begun under one of `policy`: that one, or where it is the default what the
    execution's definition says. It is kept where its parent is, so it cannot stay in one region by itself."""
    return own if policy == HOME_ASYNC and own != SINGLE_REGION else policy


def child_of(taken: Taken, event: Event, version: int, region_policy: str) -> NewExecution:
    """The child that was just begun; `region_policy` is its definition's."""
    data, row = event.data, taken.row
    parent = {
        "run_id": ids.encode(ids.WORKFLOW_RUN, row.run_id),
        "workflow_id": row.workflow_id,
        "step": data["step"],
        "wait": data.get("wait", True),
    }
    return execution_of(
        run_id=derived_run(taken, event.seq),
        workflow_id=data["workflow_id"],
        definition=data["definition"],
        version=version,
        region_policy=inherited(row.region_policy, region_policy),
        given=data.get("input"),
        hash_=input_hash(data["definition"], data.get("version"), data.get("input")),
        at_ms=event.at,
        parent=parent,
    )


def successor_of(taken: Taken, execution: Execution, event: Event) -> NewExecution:
    """The execution that goes on in place of one that continued as new. A start that is said again means
    it, too."""
    row = taken.row
    new = execution_of(
        run_id=derived_run(taken, event.seq),
        workflow_id=row.workflow_id,
        definition=row.definition,
        version=execution.version,
        region_policy=row.region_policy,
        given=event.data.get("input"),
        hash_=row.input_hash,
        at_ms=event.at,
        first=False,
        parent=row.parent,
    )
    # What was taken for it and nobody waited for yet goes on with it; what came too late does not.
    kept = [s for of_name in execution.buffered.values() for s in of_name]
    late = frozenset(execution.late_signals)
    signals = [_encode(signal) for signal in kept if signal["signal_id"] not in late]
    return replace(new, signals=signals, follows=row.run_id)


def run_of(taken: Taken) -> RunKey | None:
    """The run of the job that began it, if one did."""
    parent = taken.row.parent
    return None if parent is None or "job_id" not in parent else ids.parse_run_id(parent["run_id"])


def word_to_parent(taken: Taken, execution: Execution) -> tuple[uuid.UUID, str, bytes] | None:
    """What the parent of a closed execution is told, if it waits for it."""
    parent = taken.row.parent
    if parent is None or not parent.get("wait") or execution.status is Status.CONTINUED_AS_NEW:
        return None
    run_id = ids.decode(ids.WORKFLOW_RUN, parent["run_id"])
    if run_id is None:
        return None
    word = {
        "step": parent["step"],
        "workflow_id": taken.row.workflow_id,
        "status": execution.status,
        "result": execution.result,
        "error": execution.error,
    }
    return run_id, "CHILD", _encode(word)
