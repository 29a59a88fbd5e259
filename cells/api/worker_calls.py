"""What workers say of the runs they hold: heartbeats, endings, releases; one by one and in bulk."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec
from starlette.responses import Response

from cells.api import documents, shapes
from cells.api.endings import Ended, Said
from cells.api.finding import RunId, run_key_of
from cells.api.problems import Problem, body_fault, conflict, invalid, not_found, pointer_to, unconfirmed
from cells.api.pulled import Ending, Outcome
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.worker_models import (
    PROGRESS_LIMIT,
    CompleteIn,
    CompletesIn,
    HeartbeatIn,
    HeartbeatsIn,
    ReleaseIn,
)
from cells.contract import ErrorCode, Scope
from cells.domain import ids
from cells.domain.ids import RunKey
from cells.domain.job import STRICT
from cells.ports import Retryable
from cells.pulling import Beat, Extended, Held

routes = Routes("Workers")
_encode = msgspec.json.Encoder().encode


# --- heartbeats --------------------------------------------------------------------------
@routes.add(
    "POST",
    "/v1/runs/{run_id:run}:heartbeat",
    Rule(scope=Scope.WORKERS, writes=True, facts=True),
    answers={200: ("The lease as it is now.", shapes.HeartbeatTaken)},
    problems=(404, 409),
)
async def heartbeat_run(call: Call, run_id: RunId, body: HeartbeatIn) -> Response:
    """Extend the lease of a claim by its length, tell how far the work is, and hear whether the run was
    cancelled. 409 EPOCH_SUPERSEDED: the run is no longer this claim's; stop, nothing it does counts."""
    beat = _beat(call.tenant_id, run_key_of(run_id), body, "/progress")
    (extended,) = await call.services.heartbeats.put([beat])
    if extended is None:
        (problem,) = await _not_held(call, [(run_id, beat.held)])
        raise problem
    return answer(_extended(extended))


@routes.add(
    "POST",
    "/v1/runs:heartbeat",
    Rule(scope=Scope.WORKERS, writes=True, facts=True),
    answers={200: ("One result per heartbeat, in order.", shapes.HeartbeatResults)},
)
async def heartbeat_runs(call: Call, body: HeartbeatsIn) -> Response:
    """Many heartbeats in one request."""
    keys = _keys([item.run_id for item in body.items])
    beats = [
        _beat(call.tenant_id, key, item, pointer_to("items", n, "progress"))
        for n, (key, item) in enumerate(zip(keys, body.items, strict=True))
        if key is not None
    ]
    taken = await call.services.heartbeats.put(beats) if beats else ()
    lost = [beat.held for beat, extended in zip(beats, taken, strict=True) if extended is None]
    problems = iter(await _not_held(call, [(ids.run_id(held.key), held) for held in lost]))
    answers = iter(taken)
    results: list[documents.Document] = []
    for key, item in zip(keys, body.items, strict=True):
        if key is None:
            results.append(_refused(item.run_id, not_found("run")))
            continue
        extended = next(answers)
        if extended is None:
            results.append(_refused(item.run_id, next(problems)))
        else:
            results.append({"run_id": item.run_id, "status": 200, **_extended(extended)})
    return answer({"results": results})


def _beat(tenant_id: uuid.UUID, key: RunKey, body: HeartbeatIn, pointer: str) -> Beat:
    progress = None if body.progress is None else _encode(body.progress)
    if progress is not None and len(progress) > PROGRESS_LIMIT:
        raise invalid([body_fault(pointer, f"has {len(progress)} bytes; {PROGRESS_LIMIT} at most")])
    if progress is not None and b"\\u0000" in progress:
        raise invalid([body_fault(pointer, "must hold no NUL")])
    return Beat(held=Held(tenant_id=tenant_id, key=key, epoch=body.epoch), progress=progress)


def _extended(extended: Extended) -> documents.Document:
    return {
        "lease_expires_at": documents.instant(extended.lease_expires_at),
        "heartbeat_every_seconds": extended.lease_ms / 3000,
        "cancel_requested": extended.cancel_requested,
    }


# --- endings -----------------------------------------------------------------------------
@routes.add(
    "POST",
    "/v1/runs/{run_id:run}:complete",
    Rule(scope=Scope.WORKERS, writes=True, facts=True),
    answers={200: ("What became of the run.", shapes.CompleteTaken)},
    problems=(404, 409),
)
async def complete_run(call: Call, run_id: RunId, body: CompleteIn) -> Response:
    """Say how the work ended. FAILED is tried again as the job's retry policy says, unless another attempt
    would not help. CANCELLED is for runs that somebody cancelled. The same outcome of the same
    epoch again is answered as before; 409 EPOCH_SUPERSEDED: the run is no longer this claim's."""
    (ended,) = await call.services.endings.put([_said(call.tenant_id, run_key_of(run_id), body)])
    if isinstance(ended, Problem):
        raise ended
    call.concerns(ended.region_policy)
    return answer(_ended(run_id, body.epoch, ended))


@routes.add(
    "POST",
    "/v1/runs:complete",
    Rule(scope=Scope.WORKERS, writes=True, facts=True),
    answers={200: ("One result per run, in order.", shapes.CompleteResults)},
)
async def complete_runs(call: Call, body: CompletesIn) -> Response:
    """Many endings in one request, each judged by itself."""
    keys = _keys([item.run_id for item in body.items])
    said = [
        _said(call.tenant_id, key, item)
        for key, item in zip(keys, body.items, strict=True)
        if key is not None
    ]
    answers = await call.services.endings.put(said) if said else ()
    alone = await _alone(call, answers)
    taken = iter(answers)
    results: list[documents.Document] = []
    for key, item in zip(keys, body.items, strict=True):
        ended = not_found("run") if key is None else next(taken)
        if isinstance(ended, Problem):
            results.append(_refused(item.run_id, ended))
        elif alone is not None and ended.region_policy == STRICT:
            results.append(_refused(item.run_id, alone))
        else:
            results.append({"status": 200, **_ended(item.run_id, item.epoch, ended)})
    return answer({"results": results})


async def _alone(call: Call, answers: Sequence[Ended | Problem]) -> Problem | None:
    """What STRICT ends among them are told where no other region has them in time."""
    if any(isinstance(one, Ended) and one.region_policy == STRICT for one in answers):
        try:
            await call.services.store.confirm()
        except Retryable as fault:
            return unconfirmed(fault)
    return None


def _said(tenant_id: uuid.UUID, key: RunKey, body: CompleteIn) -> Said:
    result = None
    if body.outcome is Outcome.SUCCEEDED and body.result is not None:
        result = _encode(body.result).decode()
    ending = Ending(
        epoch=body.epoch,
        outcome=body.outcome,
        result=result,
        error=body.error,
        retryable=body.retryable,
    )
    return Said(held=Held(tenant_id=tenant_id, key=key, epoch=body.epoch), ending=ending)


def _ended(run_id: str, epoch: int, ended: Ended) -> documents.Document:
    return {
        "run_id": run_id,
        "epoch": epoch,
        "state": ended.state,
        "attempt": ended.attempt,
        "next_attempt_at": documents.instant(ended.next_attempt_at),
    }


# --- releases ----------------------------------------------------------------------------
@routes.add(
    "POST",
    "/v1/runs/{run_id:run}:release",
    Rule(scope=Scope.WORKERS, writes=True, facts=True),
    answers={200: ("It went back.", shapes.ReleaseTaken)},
    problems=(404, 409),
)
async def release_run(call: Call, run_id: RunId, body: ReleaseIn) -> Response:
    """Give a claim back undone: others may have the task at once, and the attempt is not counted."""
    services = call.services
    held = Held(tenant_id=call.tenant_id, key=run_key_of(run_id), epoch=body.epoch)
    (queue,) = await services.store.give_back([held], host_id=services.host.host_id)
    if queue is None:
        (problem,) = await _not_held(call, [(run_id, held)])
        raise problem
    await services.desk.announce([queue])
    return answer({"run_id": run_id})


async def _not_held(call: Call, claims: Sequence[tuple[str, Held]]) -> list[Problem]:
    """Why claims were refused: there is no such run of this tenant, or it is not theirs (any more)."""
    runs = await call.services.store.pulled_runs([held for _, held in claims]) if claims else ()
    return [
        superseded(run_id) if run else not_found("run") for (run_id, _), run in zip(claims, runs, strict=True)
    ]


def superseded(run_id: str) -> Problem:
    """409: the run is not this claim's (any more)."""
    return conflict(
        f"The run {run_id} is not held under this epoch (any more); nothing was changed.",
        ErrorCode.EPOCH_SUPERSEDED,
        reason=ErrorCode.EPOCH_SUPERSEDED.value,
    )


def _keys(run_ids: Sequence[str]) -> list[RunKey | None]:
    return [ids.parse_run_id(text) for text in run_ids]


def _refused(run_id: str, problem: Problem) -> documents.Document:
    return {"run_id": run_id, "status": problem.status, "problem": problem.document()}
