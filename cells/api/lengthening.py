"""Lengthening the LOW windows of coming minutes, for the control plane's operators."""

from __future__ import annotations

import uuid
from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from cells.api import pagination
from cells.api.documents import instant
from cells.api.problems import Problem, body_fault, invalid
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.texts import Moment
from cells.contract import BODY_HASH_HEADER, UNSIGNED_BODY, ErrorCode, Scope
from cells.domain import ids

routes = Routes("Internal")

MAX_EXTRA_SECONDS = 6 * 3600
_MAX_AHEAD = timedelta(hours=24)
#: Timers moved by one request; where to go on is said.
_LIMIT = 200_000


class LengthenIn(BaseModel):
    """Which timers, and by how much at most."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    since: Moment = Field(alias="from")
    until: Moment
    extra_seconds: int = Field(ge=1, le=MAX_EXTRA_SECONDS)
    tenant_id: str | None = None
    #: What it is known by. Asked again under the same id, because an answer was lost, it goes on where it had
    #: stopped, and moves no timer a second time.
    operation_id: str | None = Field(default=None, min_length=1, max_length=100)
    #: Where another answer of the same request stopped.
    cursor: str | None = Field(default=None, max_length=pagination.CURSOR_LIMIT)
    actor: str = Field(min_length=1, max_length=200)


@routes.add(
    "POST",
    "/internal/windows:lengthen",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("What was moved.", None)},
)
async def lengthen_windows(call: Call, body: LengthenIn) -> Response:
    """Spread the LOW timers due in a stretch of time over as much longer: each moves later by its own
    share, once, never earlier, and never to its next occurrence. Affected tenants are told by an event."""
    if (call.header(BODY_HASH_HEADER.lower().encode()) or UNSIGNED_BODY) == UNSIGNED_BODY:
        raise Problem(401, ErrorCode.UNAUTHENTICATED, "The body of this request must be signed.")
    services = call.services
    now = services.now()
    tenant = ids.decode(ids.TENANT, body.tenant_id) if body.tenant_id is not None else None
    faults = []
    if body.tenant_id is not None and tenant is None:
        faults.append(body_fault("/tenant_id", "is no tenant's id"))
    if body.until <= max(body.since, now):
        faults.append(body_fault("/until", "must lie after from, and ahead"))
    if body.until > now + _MAX_AHEAD:
        faults.append(body_fault("/until", "lies more than 24 hours ahead"))
    if faults:
        raise invalid(faults)
    asked: dict[str, object] = {
        "from": instant(body.since), "until": instant(body.until), "extra_seconds": body.extra_seconds,
        "tenant_id": body.tenant_id,
    }  # fmt: skip
    place = pagination.read_cursor(body.cursor, "windows", asked, tuple[uuid.UUID, int, uuid.UUID])
    after = None if place is None else (place[0], pagination.read_instant(place[1]), place[2])
    operation = None
    if body.operation_id is not None:
        operation = " ".join(map(str, (body.operation_id, *asked.values())))
    jobs = 0
    while True:
        done = await services.store.lengthen_windows(
            since=body.since,
            until=body.until,
            extra_ms=body.extra_seconds * 1000,
            tenant_id=tenant,
            after=after,
            actor=body.actor,
            host_id=services.host.host_id,
            operation=operation,
        )
        jobs, after = jobs + done.jobs, done.after
        services.feed.remove(done.removed)
        services.feed.add(done.added)
        if after is None or jobs >= _LIMIT:
            break
    cursor = None
    if after is not None:
        key = (after[0], pagination.instant_key(after[1]), after[2])
        cursor = pagination.make_cursor("windows", asked, key)
    return answer(
        {
            "jobs": jobs,
            "cursor": cursor,
            "from": instant(body.since),
            "until": instant(body.until),
            "extra_seconds": body.extra_seconds,
        }
    )
