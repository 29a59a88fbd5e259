"""What the control plane asks after a rehearsal: how punctual the cell was, and what was perhaps repeated."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from cells.api.documents import instant
from cells.api.problems import invalid, query_fault
from cells.api.queries import Query as Asked
from cells.api.routing import Call, Routes, Rule, answer
from cells.contract import Scope
from cells.domain import ids

routes = Routes("Internal")

_MOST = timedelta(hours=2)
#: A claim's number is at least its owner's epoch times this.
_CLAIMS = 1 << 20


class Span(Asked):
    """Runs due in [since, until); `epoch`: the cell's, of the owner that took it over in between."""

    since: datetime
    until: datetime
    epoch: int = Field(ge=0, lt=1 << 43)


@routes.add(
    "GET",
    "/internal/punctuality",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("Runs due, begun once, late, refused, and perhaps repeated.", None)},
)
async def read_punctuality(call: Call, query: Annotated[Span, Query()]) -> Response:
    """Read how punctual all tenants' runs of a span were. `refused`: claims of earlier owners whose outcome
    counts no more; `repeats`: runs whose target may have heard of them twice, under the same key."""
    if query.since.tzinfo is None or query.until.tzinfo is None:
        raise invalid([query_fault("since", "instants with an offset, as 2026-01-01T00:00:00Z")])
    if not timedelta() < query.until - query.since <= _MOST:
        raise invalid([query_fault("until", "must lie behind since, by 2 hours at most")])
    found = await call.services.store.punctuality(
        since=query.since, until=query.until, claims=query.epoch * _CLAIMS
    )
    return answer(
        {
            "cell": call.services.settings.cell_name,
            "due": found.due,
            "began": found.began,
            "once": found.once,
            "late_p50_ms": found.late_p50_ms,
            "late_p99_ms": found.late_p99_ms,
            "late_max_ms": found.late_max_ms,
            "refused": found.refused,
            "repeated": found.repeated,
            "first_began_at": instant(found.first_began_at),
            "repeats": [
                {
                    "tenant_id": ids.encode(ids.TENANT, one.tenant_id),
                    "run_id": ids.run_id(one.key),
                    "state": one.state,
                    "lost": one.lost,
                }
                for one in found.repeats
            ],
        }
    )
