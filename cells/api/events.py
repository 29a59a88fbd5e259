"""The event feed: what people should hear of."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from fastapi import Query
from starlette.responses import Response

from cells.api import documents, pagination, shapes
from cells.api.queries import EventQuery
from cells.api.routing import Call, Routes, Rule, answer
from cells.contract import Scope
from cells.ports import EventRow

routes = Routes("Events")

#: While a request waits for events, it looks this often (seconds).
_LOOK_SECONDS = 0.5
#: Before everything.
_START = (0, 0)

_Place = tuple[int, int]


@routes.add(
    "GET",
    "/v1/events",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("Events, oldest first.", shapes.EventPage)},
)
async def list_events(call: Call, query: Annotated[EventQuery, Query()]) -> Response:
    """Read what people should hear of: dead letters, targets and jobs that somebody changed, bulk
    operations, limits that were reached. Kept for 30 days.

    Without a cursor the newest ones are shown; `cursor=start` begins with the oldest. `next_cursor`
    is always there: ask again with it, and `wait` up to 20 seconds for something new. Nothing is
    ever added before a cursor, so a reader that keeps it misses nothing. Events that many jobs or
    runs have in common are told once, with `count`.
    """
    filters = {"type": query.type}
    place: _Place | None
    if query.cursor == "start":
        place = _START
    else:
        place = pagination.read_cursor(query.cursor, "events", filters, _Place)
    services = call.services
    loop = asyncio.get_running_loop()
    deadline = loop.time() + query.wait
    while True:
        rows = await services.store.events(call.tenant_id, after=place, type_=query.type, limit=query.limit)
        left = deadline - loop.time()
        if rows or place is None or left <= 0:
            break
        await asyncio.sleep(min(_LOOK_SECONDS, left))
    reached = rows[-1].place if rows else place or _START
    return answer(
        {
            "items": [_event(row) for row in rows],
            "next_cursor": pagination.make_cursor("events", filters, reached),
            "more": place is not None and len(rows) == query.limit,
        }
    )


def _event(row: EventRow) -> documents.Document:
    xid, seq = row.place
    return {
        "event_id": f"evt_{xid}_{seq}",
        "type": row.type,
        "at": documents.instant(row.at),
        "subject": row.subject,
        "actor": row.actor,
        "data": msgspec.Raw(row.data),
    }
