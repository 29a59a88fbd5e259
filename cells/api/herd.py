"""The herd map: what will be due, minute by minute."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from cells.api import shapes
from cells.api.documents import Document, instant
from cells.api.queries import HerdQuery
from cells.api.routing import Call, Routes, Rule, answer
from cells.contract import Scope
from cells.domain.herd import JOBS_LIMIT, TIMERS_LIMIT, Herd, expand
from cells.domain.job import Priority

routes = Routes("Statistics")

#: Between two looks at other requests: about so many microseconds of counting.
_SLICE = 5_000
_METHOD = (
    "The next timer of every waiting job, and the further occurrences of the recurring ones with their "
    f"offsets. Bounded: the {TIMERS_LIMIT} soonest timers, the schedules of the {JOBS_LIMIT} soonest jobs, "
    "and a fixed amount of work, spent on the schedules that most jobs share first."
)


@routes.add(
    "GET",
    "/v1/herd",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The minutes that have something due.", shapes.Herd)},
)
async def read_herd(call: Call, query: Annotated[HerdQuery, Query()]) -> Response:
    """Read how many ticks are due in each minute of the coming hours, dispatch windows included.

    Counted from the jobs as they are now. `truncated` says that some recurring jobs are counted with
    their next occurrence only, `jobs_left_out` how many.
    """
    now = call.services.now()
    since = now.replace(second=0, microsecond=0)
    until = since + timedelta(hours=query.hours)
    timers, groups = await call.services.store.herd(
        call.tenant_id,
        since=since,
        until=until,
        target_id=query.target,
        priority=Priority[query.priority] if query.priority is not None else None,
    )
    herd = Herd()
    herd.minutes.update({int(at.timestamp()) // 60: count for at, count in timers.items()})
    waiting = sum(timers.values())
    seen = 0
    for spent in expand(groups, until, herd):
        if spent - seen >= _SLICE:
            seen = spent
            await asyncio.sleep(0)
    left_out = herd.left_out
    unseen = max(0, waiting - JOBS_LIMIT)
    minutes = [_minute(minute, count) for minute, count in sorted(herd.minutes.items())]
    return answer(
        {
            "since": instant(since),
            "until": instant(until),
            "minutes": minutes,
            "total": sum(herd.minutes.values()),
            "peak": max(minutes, key=lambda item: item["count"]) if minutes else None,
            "jobs": waiting,
            "jobs_left_out": left_out + unseen,
            "truncated": left_out > 0 or unseen > 0 or waiting >= TIMERS_LIMIT,
            "method": _METHOD,
        }
    )


def _minute(minute: int, count: int) -> Document:
    return {"minute": instant(datetime.fromtimestamp(minute * 60, UTC)), "count": count}
