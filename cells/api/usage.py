"""What the control plane asks about usage: runs that ended, to hold meters against, and by job.

They are folded from what the journal says of runs once its minutes are sealed; no table of jobs or
runs is looked at. Jobs' usage stays with the cell that counted it, as meters do.
"""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from cells.api.documents import instant
from cells.api.internal import TenantId
from cells.api.problems import invalid, not_found, query_fault
from cells.api.queries import Query as Asked
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.spread.usage import by_job, whole_day
from cells.contract import Scope
from cells.domain import ids

routes = Routes("Internal")

_DAY = timedelta(days=1)
_MOST_DAYS = 400
_MOST_JOBS = 1000
_internal = Rule(scope=Scope.INTERNAL, internal=True)


class ByJob(Asked):
    """A page of jobs, over the days from `since` to before `until`."""

    since: date
    until: date
    after: str | None = Field(default=None, max_length=80)
    limit: int = Field(default=200, ge=1, le=_MOST_JOBS)


@routes.add(
    "GET",
    "/internal/usage/{day}",
    _internal,
    answers={200: ("Runs that ended on the day, by tenant and region policy.", None)},
)
async def read_day(call: Call, day: Annotated[str, Path(description="A UTC day.")]) -> Response:
    """Read how many runs ended on a UTC day. `complete`: every minute of it is sealed and counted."""
    asked = _day(day)
    store = call.services.store
    # First how far, then the figures: what is counted in between only makes them truer.
    span = await store.usage_span()
    start = datetime.combine(asked, time(), UTC)
    items = await store.runs_of_day(asked)
    counted = {
        "cell": call.services.settings.cell_name,
        "day": asked.isoformat(),
        "complete": span.since <= start and start + _DAY <= span.until,
        "complete_until": instant(span.until),
        "items": [
            {"tenant_id": ids.encode(ids.TENANT, tenant), "region_policy": policy, "job_runs": runs}
            for tenant, policy, runs in items
        ],
    }
    return answer(await whole_day(call, counted))


def _day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise not_found("day") from None
    if day == date.max:
        raise not_found("day")
    return day


@routes.add(
    "GET",
    "/internal/tenants/{tenant_id}/job-usage",
    _internal,
    answers={200: ("Runs that ended, by job.", None)},
)
async def read_by_job(call: Call, tenant_id: TenantId, query: Annotated[ByJob, Query()]) -> Response:
    """Read how many runs of each job ended in some days, in order of the jobs' ids."""
    tenant = ids.decode(ids.TENANT, tenant_id)
    if tenant is None:
        raise not_found("tenant")
    if not timedelta() < query.until - query.since <= _MOST_DAYS * _DAY:
        raise invalid([query_fault("until", f"must lie 1 to {_MOST_DAYS} days behind since")])
    after = None if query.after is None else ids.decode(ids.JOB, query.after)
    if query.after is not None and after is None:
        raise invalid([query_fault("after", "is not a job's id")])
    store = call.services.store
    span = await store.usage_span()
    items = await store.usage_by_job(
        tenant, since=query.since, until=query.until, after=after or uuid.UUID(int=0), limit=query.limit
    )
    counted = {
        "cell": call.services.settings.cell_name,
        "complete_until": instant(span.until),
        "items": [
            {
                "job_id": ids.encode(ids.JOB, item.job_id),
                "region_policy": item.region_policy,
                "job_runs": item.runs,
            }
            for item in items
        ],
    }
    return answer(await by_job(call, counted, limit=query.limit))
