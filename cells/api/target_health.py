"""How targets are doing, and trying them out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from cells.api import shapes
from cells.api.documents import instant
from cells.api.finding import TargetId, found_target
from cells.api.problems import conflict
from cells.api.queries import HealthQuery
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.stats import calls
from cells.api.target_limits import HISTORY, board_of, drill_document, limit_document
from cells.api.target_models import TestIn
from cells.contract import Scope
from cells.domain import ids
from cells.ports import TargetRow

routes = Routes("Targets")

_FAILING_BELOW = 0.9
_FAILURES = 10


@routes.add(
    "GET",
    "/v1/targets/{target_id:name}/health",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("How it has been doing.", shapes.TargetHealth)},
    problems=(404,),
)
async def read_target_health(
    call: Call, target_id: TargetId, query: Annotated[HealthQuery, Query()]
) -> Response:
    """Read how a target has been doing: outcomes and durations of the calls that ended in the last
    minutes, what is under way now, what it can take and what is parked, and what failed for good lately."""
    row = await found_target(call, target_id)
    store = call.services.store
    until = call.services.now()
    since = until - timedelta(minutes=query.minutes)
    figures = calls(
        await store.target_stats(
            call.tenant_id, target_id, since=since.replace(second=0, microsecond=0), until=until
        )
    )
    letters = await store.list_dlq(
        call.tenant_id, target_id=target_id, fingerprint=None, after=None, limit=_FAILURES
    )
    board = await board_of(call.services.queue, call.tenant_id, target_id)
    hour = await store.target_stats(
        call.tenant_id, target_id, since=until - timedelta(minutes=HISTORY), until=until
    )
    drill = await store.drill(call.tenant_id, target_id)
    rate = figures["succeeded"] / figures["calls"] if figures["calls"] else None
    return answer(
        {
            "target_id": target_id,
            "state": row.state,
            "verdict": _verdict(row, rate, figures["call_p95_ms"]),
            "since": instant(since),
            "until": instant(until),
            **figures,
            "success_rate": round(rate, 4) if rate is not None else None,
            "latency_slo_ms": row.latency_slo_ms,
            "in_flight": await store.target_in_flight(call.tenant_id, target_id),
            "max_concurrency": row.max_concurrency,
            "limit": None if board is None else limit_document(board, row, hour, until),
            "drill": None if drill is None else drill_document(drill),
            "recent_failures": [
                {
                    "run_id": ids.run_id(letter["key"]),  # type: ignore[arg-type]
                    "fingerprint": letter["fingerprint"],
                    "http_status": letter["http_status"],
                    "error": letter["error"],
                    "failed_at": instant(letter["failed_at"]),  # type: ignore[arg-type]
                }
                for letter in letters
            ],
        }
    )


def _verdict(row: TargetRow, rate: float | None, p95: float | None) -> str:
    if rate is None:
        return "idle"
    if rate < _FAILING_BELOW:
        return "failing"
    return "slow" if p95 is not None and p95 > row.latency_slo_ms else "healthy"


@routes.add(
    "POST",
    "/v1/targets/{target_id:name}:test",
    Rule(scope=Scope.JOBS_WRITE, writes=True, body_optional=True),
    answers={200: ("What came of the call.", shapes.TargetTested)},
    problems=(404, 409, 413),
)
async def test_target(call: Call, target_id: TargetId, body: TestIn) -> Response:
    """Call a target once, signed as a run's call is, and show what it answers. It makes no run and is
    not retried. A target that is not approved can be tried only by those who may approve it, and none
    beyond its `max_concurrency`."""
    services = call.services
    row = await found_target(call, target_id)
    if row.state != "APPROVED" and not call.may(Scope.TARGETS_APPROVE):
        raise conflict(f"The target is {row.state}; only those who may approve it can try it.")
    with _one_more(call, row, await services.store.target_in_flight(call.tenant_id, target_id)):
        return await _tried(call, row, body)


@contextlib.contextmanager
def _one_more(call: Call, row: TargetRow, in_flight: int) -> Iterator[None]:
    """A place among the calls that the target takes at a time."""
    trials, name = call.services.trials, (row.tenant_id, row.target_id)
    if in_flight + trials[name] >= row.max_concurrency:
        raise conflict(f"The target has {row.max_concurrency} calls under way, as many as it takes.")
    trials[name] += 1
    try:
        yield
    finally:
        trials[name] -= 1
        if not trials[name]:
            del trials[name]


async def _tried(call: Call, row: TargetRow, body: TestIn) -> Response:
    services, target_id = call.services, row.target_id
    # Before the call: whoever may not act for the tenant any more must not call its targets.
    await services.store.add_intent(
        call.fence, verb="target.test", subject=target_id, host_id=services.host.host_id
    )
    secrets = await services.store.target_secrets(call.tenant_id, target_id)
    test_id = ids.encode("test", services.fresh_id())
    found = await services.trial.call(
        row,
        secrets,
        test_id=test_id,
        method=body.method,
        path=body.path,
        payload=call.payload,
        timeout_seconds=body.timeout_seconds,
    )
    ok = found.status is not None and 200 <= found.status < 300
    outcome = {"status": found.status, "error": found.error, "latency_ms": found.latency_ms}
    await services.store.add_event(
        call.fence,
        type_="target.tested",
        subject=target_id,
        actor=call.caller.actor,
        data={"ok": ok, **outcome},
        host_id=services.host.host_id,
    )
    document = {"test_id": test_id, "ok": ok, "url": found.url, "method": body.method, **outcome}
    if call.may(Scope.PAYLOADS_READ):
        document["body"] = found.body
    elif found.body:
        document["body_hidden"] = True
    return answer(document)
