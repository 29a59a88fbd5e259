"""What is said to workflows: signals, and what ends or changes them."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated

import msgspec
from fastapi import Path
from starlette.responses import Response

from cells.api import idempotency, shapes
from cells.api.definitions import (
    REPLAY_SECONDS,
    diverging,
    found_definition,
    made_elsewhere,
    read_definition,
    until,
)
from cells.api.problems import Problem, body_fault, invalid, not_found, unavailable
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.workflow_documents import read_events, shows_values, workflow_document
from cells.api.workflow_models import MigrateIn, ReasonIn, ResetIn, ResolveIn, SignalIn
from cells.api.workflows import WorkflowIdPath, present_workflow
from cells.contract import ErrorCode, Scope
from cells.domain import ids
from cells.domain.job import STRICT
from cells.domain.workflow.compatibility import Divergence, first_divergence
from cells.domain.workflow.execution import Status
from cells.workflow_ports import WorkflowRow
from cells.workflows.changing import Change, Diverges, migration, reset

routes = Routes("Workflows")

_encode = msgspec.json.Encoder().encode
_WRITES = Rule(scope=Scope.WORKFLOWS_WRITE, writes=True)
_OPTIONAL = Rule(scope=Scope.WORKFLOWS_WRITE, writes=True, body_optional=True)
#: Where a STRICT workflow is once it has done what it was told.
_HEEDED = {
    "CANCEL": (Status.COMPENSATING, Status.COMPENSATED, Status.COMPENSATION_STUCK, Status.CANCELLED),
    "TERMINATE": (Status.TERMINATED,),
}
#: As definitions name what their steps wait for.
_SIGNAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
SignalName = Annotated[str, Path(description="What a step waits for.", examples=["picked_up"])]


@routes.add(
    "POST",
    "/v1/workflows/{workflow_id:name}/signals/{signal:name}",
    _WRITES,
    answers={202: ("It is taken, or was before.", shapes.SignalTaken)},
    problems=(404, 409, 429),
)
async def signal_workflow(
    call: Call, workflow_id: WorkflowIdPath, signal: SignalName, body: SignalIn
) -> Response:
    """Send a signal, once per `signal_id`. Before anybody waits it is kept; after the timeout of its wait it
    is recorded, changes nothing, and is answered as late. A name that no step waits for, in any version of
    the definition, is a 422 with the names there are."""
    if not _SIGNAL_NAME.fullmatch(signal):
        raise invalid(
            [body_fault("", "a signal's name has 1 to 64 letters, digits or _, and begins with no digit")]
        )
    row = await present_workflow(call, workflow_id)
    known = await call.services.known_definitions.find(call.tenant_id, row.definition, row.version)
    never = None
    # It may be sent ahead of a migration; one that was taken before has its answer, whatever came after.
    if (
        known is not None
        and known.signals is not None
        and signal not in known.signals
        and not await call.services.known_definitions.ever_waits_for(call.tenant_id, row.definition, signal)
    ):
        never = _never(signal, row, known.signals)
    taken = await call.services.store.signal_workflow(
        call.fence,
        workflow_id=workflow_id,
        signal_id=body.signal_id,
        name=signal,
        payload=call.payload or b"null",
        actor=call.caller.actor,
        host_id=call.services.host.host_id,
        again_only=never is not None,
    )
    call.concerns(row.region_policy)
    if taken is None:
        raise not_found("workflow") if never is None else invalid([body_fault("", never)])
    return answer(
        {
            "workflow_id": workflow_id,
            "run_id": ids.encode(ids.WORKFLOW_RUN, taken.run_id),
            "signal_id": body.signal_id,
            "status": taken.status,
        },
        202,
    )


@routes.add(
    "POST",
    "/v1/workflows/{workflow_id:name}:cancel",
    _OPTIONAL,
    answers={202: ("It will undo what it did.", shapes.Workflow)},
    problems=(404, 409),
)
async def cancel_workflow(call: Call, workflow_id: WorkflowIdPath, body: ReasonIn) -> Response:
    """Ask a workflow to stop: what is under way is stopped or waited for, then what was done is undone."""
    return await _told(call, workflow_id, "CANCEL", body.run_id, reason=body.reason)


@routes.add(
    "POST",
    "/v1/workflows/{workflow_id:name}:terminate",
    _OPTIONAL,
    answers={202: ("It will end as it is.", shapes.Workflow)},
    problems=(404, 409),
)
async def terminate_workflow(call: Call, workflow_id: WorkflowIdPath, body: ReasonIn) -> Response:
    """End a workflow at once. Nothing is undone."""
    return await _told(call, workflow_id, "TERMINATE", body.run_id, reason=body.reason)


@routes.add(
    "POST",
    "/v1/workflows/{workflow_id:name}:resolve",
    _WRITES,
    answers={202: ("It goes on.", shapes.Workflow)},
    problems=(404, 409),
)
async def resolve_workflow(call: Call, workflow_id: WorkflowIdPath, body: ResolveIn) -> Response:
    """Decide about a workflow whose compensation is stuck: `retry` what did not succeed, under its key, or
    `close` it as it is. The note stays in the history."""
    return await _told(call, workflow_id, "RESOLVE", body.run_id, action=body.action, note=body.note)


@routes.add(
    "POST",
    "/v1/workflows/{workflow_id:name}:reset",
    _WRITES,
    answers={200: ("The execution that goes on in its place.", shapes.Workflow)},
    problems=(404, 409),
    idempotent=True,
)
async def reset_workflow(call: Call, workflow_id: WorkflowIdPath, body: ResetIn) -> Response:
    """Go back to a step: another execution begins with the history up to there, and this one ends. Nothing is
    undone; what runs again has keys of its own."""
    row = await present_workflow(call, workflow_id)
    source = (await found_definition(call, row.definition, row.version)).source
    definition = read_definition(source, row.definition, row.version)
    change = reset(definition, body.step, call.caller.actor, call.services.entropy(10))
    key = idempotency.read_key(call.header(b"idempotency-key"))
    route = f"POST /v1/workflows/{workflow_id}:reset"
    with call.services.in_flight.hold(call.tenant_id, route, key):
        keyed = idempotency.keyed(route, key, call.raw_body)
        return await _changed(call, workflow_id, change, keyed)


@routes.add(
    "POST",
    "/v1/workflows/{workflow_id:name}:migrate",
    _WRITES,
    answers={200: ("It goes on under that version.", shapes.Workflow)},
    problems=(404, 409),
)
async def migrate_workflow(call: Call, workflow_id: WorkflowIdPath, body: MigrateIn) -> Response:
    """Go on under another version. One that would not have recorded what is recorded already is 422
    NONDETERMINISTIC_DEFINITION_CHANGE with the first event that differs."""
    row = await present_workflow(call, workflow_id)
    if row.region_policy == STRICT and row.version == body.version:
        return _shown(call, row, 200)  # a repeat: the first answer may have been that nobody confirmed it
    found = await found_definition(call, row.definition, body.version)
    definition = read_definition(found.source, found.name, found.version)
    # Replayed where it holds up nobody; under the lock only what was recorded meanwhile.
    events = [] if row.closed_at is not None else await read_events(call, row)
    try:
        divergence = await asyncio.to_thread(
            first_divergence,
            definition,
            events,
            in_time=until(REPLAY_SECONDS),
            evaluate=made_elsewhere(call),
        )
    except TimeoutError as slow:
        raise unavailable("The history takes too long to replay; try again when less is going on.") from slow
    if divergence is not None:
        raise _diverges(divergence)
    change = migration(definition, call.caller.actor, checked=len(events), run_id=row.run_id)
    return await _changed(call, workflow_id, change)


def _never(signal: str, row: WorkflowRow, signals: frozenset[str]) -> str:
    names = ", ".join(sorted(signals))
    waits = f"its steps wait for {names}" if names else "its steps wait for no signal"
    return f"no step of {row.definition} {row.version} waits for a signal {signal}; {waits}"


async def _told(call: Call, workflow_id: str, kind: str, run_id: str | None, **data: str | None) -> Response:
    found = await present_workflow(call, workflow_id, run_id)
    if found.region_policy == STRICT and found.status in _HEEDED.get(kind, ()):
        return _shown(call, found, 202)  # a repeat, as above
    said = {name: value for name, value in data.items() if value is not None}
    row = await call.services.store.tell_workflow(
        call.fence,
        workflow_id=workflow_id,
        kind=kind,
        data=_encode({**said, "actor": call.caller.actor}),
        actor=call.caller.actor,
        host_id=call.services.host.host_id,
        run_id=None if run_id is None else found.run_id,
    )
    return _shown(call, row, 202)


async def _changed(
    call: Call, workflow_id: str, change: Change, keyed: tuple[str, str, bytes] | None = None
) -> Response:
    try:
        changed = await call.services.store.change_workflow(
            call.fence,
            workflow_id=workflow_id,
            change=change,
            host_id=call.services.host.host_id,
            idempotency=keyed,
        )
    except Diverges as error:
        raise _diverges(error.divergence) from None
    row, replayed = changed or (None, False)
    return _shown(call, row, 200, {"Idempotency-Replayed": "true"} if replayed else {})


def _diverges(event: Divergence) -> Problem:
    return Problem(
        422,
        ErrorCode.NONDETERMINISTIC_DEFINITION_CHANGE,
        f"Event {event.seq} ({event.type} {event.step or ''}) would not have been recorded under that "
        f"version, but: {event.expected}.",
        extra={"first_diverging_event": diverging(event)},
    )


def _shown(
    call: Call, row: WorkflowRow | None, status: int, headers: dict[str, str] | None = None
) -> Response:
    if row is None:
        raise not_found("workflow")
    call.concerns(row.region_policy)
    document = workflow_document(row, region=call.services.settings.region, values_shown=shows_values(call))
    return answer(document, status, headers)
