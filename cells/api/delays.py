"""The delay of a tenant's runs in a period, by what they waited for: its own doing, or its neighbours'."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from cells.api import shapes
from cells.api.documents import instant
from cells.api.internal import TenantId
from cells.api.problems import invalid, not_found, query_fault
from cells.api.queries import DelaysQuery, ExactDelaysQuery
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.spread.sums import delay_of_all, named
from cells.contract import Scope
from cells.domain import ids
from cells.domain.crowding import FEW, Statement, statement

routes = Routes("Statistics")

_SPAN = timedelta(days=1)
_LONGEST = timedelta(days=7)
_RUNS = 20_000
_MINUTE = timedelta(minutes=1)
_METHOD = (
    f"The newest {_RUNS:,} runs that were scheduled in this time and have begun, by where their time went. "
    "What they waited in the cell's queue is shared out by whose runs began in the same minute, in tenths; "
    f"in halves, and without telling the share, where fewer than {FEW} other tenants ran. A statement is "
    "kept for a minute. The cell's figures alone: a tenant that moved here waited before that in another one."
)


@routes.add(
    "GET",
    "/v1/delays",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The delay, part by part.", shapes.Delays)},
)
async def read_delays(call: Call, query: Annotated[DelaysQuery, Query()]) -> Response:
    """Read what the tenant's runs of at most seven days waited for: windows, retries, its quotas, its
    workers, its own runs, other tenants of its cell, its targets."""
    return await _told(call, call.tenant_id, query, exact=False)


@routes.add(
    "GET",
    "/internal/tenants/{tenant_id}/delays",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("The delay, part by part.", None)},
)
async def read_delays_of(
    call: Call, tenant_id: TenantId, query: Annotated[ExactDelaysQuery, Query()]
) -> Response:
    """Read the same of any tenant, for those who operate the cell."""
    found = ids.decode(ids.TENANT, tenant_id)
    if found is None:
        raise not_found("tenant")
    return await _told(call, found, query, exact=query.exact)


async def _told(call: Call, tenant_id: uuid.UUID, query: DelaysQuery, *, exact: bool) -> Response:
    now = call.services.now()
    # The coming minute's beginning, so that those who ask in one minute ask the same.
    until = query.until or now.replace(second=0, microsecond=0) + _MINUTE
    since = query.since or until - _SPAN
    if since >= until:
        raise invalid([query_fault("since", "must lie before until")])
    if until - since > _LONGEST:
        raise invalid([query_fault("since", "lies more than 7 days before until")])

    async def make() -> Statement:
        minutes, began = await call.services.store.waits(tenant_id, since=since, until=until, most=_RUNS)
        return statement(minutes, began, exact=exact)

    told = await call.services.delays.get(tenant_id, (since, until, exact), make)
    complete = told.runs < _RUNS
    told, silent = await delay_of_all(call, tenant_id, told, since=since, until=until, exact=exact)
    waited = told.waited
    return answer(
        {
            "since": instant(since),
            "until": instant(until),
            "runs": told.runs,
            "complete": complete,
            "waited_ms": waited,
            "mean_ms": round(waited / told.runs, 3) if told.runs else None,
            "parts": [
                {
                    "part": part,
                    "ms": ms,
                    "mean_ms": round(ms / told.runs, 3) if told.runs else None,
                    "share": round(ms / waited * 100, 2) if waited else None,
                }
                for part, ms in told.parts.items()
            ],
            "crowded_minutes": [
                {
                    "minute": instant(crowded.minute),
                    "runs": crowded.runs,
                    "others_ms": crowded.others_ms,
                    "others_share": None
                    if crowded.others_share is None
                    else round(crowded.others_share * 100, 2),
                }
                for crowded in told.crowded
            ],
            "sentence": told.sentence,
            "method": _METHOD,
        }
        | named(silent)
    )
