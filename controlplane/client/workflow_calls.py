"""The API's requests about executions of workflows. Pure, like `calls.py`; those about definitions are in
`definition_calls.py`."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any, Literal

from controlplane.client.decoding import decode
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.specs import ABSENT, as_body
from controlplane.client.wire import Answer, Call, path, query, without_none
from controlplane.client.workflow_documents import (
    Reconciliation,
    SignalTaken,
    Timeline,
    Workflow,
    WorkflowEvent,
    WorkflowStarted,
)


def start_workflow(
    workflow_id: str,
    definition: str,
    *,
    version: int | None = None,
    input: Any = ABSENT,  # noqa: A002
    id_reuse: Literal["ALLOW_CLOSED", "REJECT"] | None = None,
) -> Call[WorkflowStarted]:
    """Start a workflow under an id of yours; without a version under the newest one. The same start again
    answers the workflow it began; another one while it is open is `WorkflowIdInUse`. Once it is closed
    another start begins another workflow (`previous` tells which had the id), unless `id_reuse` is REJECT."""
    body = without_none(workflow_id=workflow_id, definition=definition, version=version, id_reuse=id_reuse)
    if input is not ABSENT:
        body["input"] = as_body(input)
    return Call(method="POST", path="/v1/workflows", read=_read_started, body=body, repeatable=True)


def _read_started(answer: Answer) -> WorkflowStarted:
    return dataclasses.replace(decode(WorkflowStarted, answer.document()), created=answer.status == 201)


def list_workflows(
    *,
    status: str | None = None,
    definition: str | None = None,
    prefix: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Workflow]]:
    """Executions, the latest start first. All conditions hold; `prefix` is what the workflow id begins
    with, `limit` the page's size."""
    return Call(
        method="GET",
        path="/v1/workflows",
        read=reads_page(Workflow),
        query=query(status=status, definition=definition, prefix=prefix, limit=limit, cursor=cursor),
    )


def reconciliation(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Reconciliation]]:
    """Executions whose history somebody should compare with the other side's books, the latest start
    first; `limit` is the page's size, 50 at most."""
    return Call(
        method="GET",
        path="/v1/workflows/reconciliation",
        read=reads_page(Reconciliation),
        query=query(limit=limit, cursor=cursor),
    )


def get_workflow(workflow_id: str, *, run_id: str | None = None) -> Call[Workflow]:
    """Where a workflow stands: the open execution of that id, else the latest; or an earlier one."""
    return Call(
        method="GET",
        path=path("/v1/workflows/{id}", id=workflow_id),
        read=reads(Workflow),
        query=query(run_id=run_id),
    )


def workflow_history(
    workflow_id: str, *, run_id: str | None = None, after: int | str | None = None, limit: int | None = None
) -> Call[Page[WorkflowEvent]]:
    """What was recorded, in its order, behind the sequence `after`."""
    return Call(
        method="GET",
        path=path("/v1/workflows/{id}/history", id=workflow_id),
        read=_read_history,
        query=query(run_id=run_id, after=after, limit=limit),
    )


def _read_history(answer: Answer) -> Page[WorkflowEvent]:
    page = reads_page(WorkflowEvent)(answer)
    after = page.document.get("next_after")
    return dataclasses.replace(page, next_cursor=None if after is None else str(after), parameter="after")


def workflow_timeline(workflow_id: str, *, run_id: str | None = None) -> Call[Timeline]:
    """When each step began, waited, ran and ended."""
    return Call(
        method="GET",
        path=path("/v1/workflows/{id}/timeline", id=workflow_id),
        read=reads(Timeline),
        query=query(run_id=run_id),
    )


def signal_workflow(
    workflow_id: str, name: str, payload: Any = None, *, signal_id: str | None = None
) -> Call[SignalTaken]:
    """Send a signal, once per `signal_id`; without one it is a new signal each time this is called. Before
    anybody waits for it, it is kept; after the timeout it is recorded and answered as late."""
    return Call(
        method="POST",
        path=path("/v1/workflows/{id}/signals/{name}", id=workflow_id, name=name),
        read=reads(SignalTaken),
        body={"signal_id": signal_id or str(uuid.uuid4()), "payload": as_body(payload)},
        repeatable=True,
    )


def _verb(workflow_id: str, verb: str, **body: object) -> Call[Workflow]:
    # None is repeated unasked: its own success may be what refuses it the second time.
    return Call(
        method="POST",
        path=path("/v1/workflows/{id}", id=workflow_id) + f":{verb}",
        read=reads(Workflow),
        body=without_none(**body),
    )


def cancel_workflow(
    workflow_id: str, *, reason: str | None = None, run_id: str | None = None
) -> Call[Workflow]:
    """Ask it to stop: what is under way is stopped or waited for, then what was done is undone. `run_id`:
    only that execution of the id; `Conflict` where it has ended."""
    return _verb(workflow_id, "cancel", reason=reason, run_id=run_id)


def terminate_workflow(
    workflow_id: str, *, reason: str | None = None, run_id: str | None = None
) -> Call[Workflow]:
    """End it at once, or only that execution of the id. Nothing is undone."""
    return _verb(workflow_id, "terminate", reason=reason, run_id=run_id)


def reset_workflow(workflow_id: str, step: str, *, idempotency_key: str | None = None) -> Call[Workflow]:
    """Go back to a step (`ship`, or `ship[2]` inside a map): another execution goes on with the history up
    to there, and is what is answered; under the same key once."""
    return Call(
        method="POST",
        path=path("/v1/workflows/{id}", id=workflow_id) + ":reset",
        read=reads(Workflow),
        body={"step": step},
        keyed=True,
        idempotency_key=idempotency_key,
    )


def migrate_workflow(workflow_id: str, version: int) -> Call[Workflow]:
    """Go on under another version of its definition. One that would not have recorded what is recorded is
    `NondeterministicChange`, with the first event that differs."""
    return _verb(workflow_id, "migrate", version=version)


def resolve_workflow(
    workflow_id: str, action: Literal["retry", "close"], *, note: str | None = None, run_id: str | None = None
) -> Call[Workflow]:
    """Decide about one whose compensation is stuck, or only about that execution of the id: try again what
    did not succeed, or close it as it is. The note stays in its history."""
    return _verb(workflow_id, "resolve", action=action, note=note, run_id=run_id)
