"""The event feed: what people should hear of."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import msgspec
from fastapi import Query
from starlette.responses import Response

from cells.api import documents, pagination, shapes
from cells.api.problems import Problem
from cells.api.queries import EventQuery
from cells.api.routing import Call, Routes, Rule, answer
from cells.contract import ErrorCode, Scope
from cells.ports import EventRow

routes = Routes("Events")

#: While a request waits for events, it looks this often (seconds).
_LOOK_SECONDS = 0.5
#: Requests of one tenant that may wait at a process at a time.
WAITERS = 20
#: Before everything.
_START = (0, 0, 0)

_Place = tuple[int, int, int]


@routes.add(
    "GET",
    "/v1/events",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("Events, oldest first.", shapes.EventPage)},
    problems=(429,),
)
async def list_events(call: Call, query: Annotated[EventQuery, Query()]) -> Response:
    """Read what people should hear of: dead letters, targets and jobs that somebody changed, bulk
    operations, limits that were reached. Kept for 30 days.

    Without a cursor the newest ones are shown; `cursor=start` begins with the oldest. `next_cursor`
    is always there: ask again with it, and `wait` up to 20 seconds for something new. Nothing is
    ever added before a cursor, so a reader that keeps it misses nothing. Events that many jobs or
    runs have in common are told once, with `count`. A `type` is looked for among 2,000 events at a time:
    without any, the cursor moves on all the same, and `more` says whether there is more to look at.
    At most 20 requests of a tenant wait at a time.
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
    with _one_of_few(services.event_waiters, call.tenant_id) if query.wait else contextlib.nullcontext():
        while True:
            found = await services.store.events(
                call.tenant_id, after=place, type_=query.type, limit=query.limit
            )
            left = deadline - loop.time()
            if found.events or place is None or left <= 0:
                break
            place = found.reached or place
            if not found.more:
                await asyncio.sleep(min(_LOOK_SECONDS, left))
    return answer(
        {
            "items": [event_document(row, services.settings.stores.own) for row in found.events],
            "next_cursor": pagination.make_cursor("events", filters, found.reached or place or _START),
            "more": found.more,
        }
    )


@contextlib.contextmanager
def _one_of_few(waiting: Counter[uuid.UUID], tenant_id: uuid.UUID) -> Iterator[None]:
    """Each that waits costs the store two looks a second."""
    if waiting[tenant_id] >= WAITERS:
        raise Problem(
            429,
            ErrorCode.QUOTA_EXCEEDED,
            f"{WAITERS} requests of this tenant wait for events already; ask without `wait`, or later.",
            extra={"scope": "tenant", "quota": "event_waiters", "limit": WAITERS},
            headers={"Retry-After": "20"},
        )
    waiting[tenant_id] += 1
    try:
        yield
    finally:
        waiting[tenant_id] -= 1
        if not waiting[tenant_id]:
            del waiting[tenant_id]


def event_document(row: EventRow, store: int) -> documents.Document:
    """An event as its readers see it. Places are each store's own: ids of a local one end with its number."""
    epoch, xid, seq = row.place
    number = f"_{store}" if store else ""
    return {
        "event_id": f"evt_{epoch}_{xid}_{seq}{number}",
        "type": row.type,
        "at": documents.instant(row.at),
        "subject": row.subject,
        "actor": row.actor,
        "data": msgspec.Raw(row.data),
    }
