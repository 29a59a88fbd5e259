"""Statistics: a tenant's runs, minute by minute, with how late they started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from cells.api import shapes
from cells.api.documents import instant
from cells.api.finding import found_job, found_target, job_id_of
from cells.api.internal import TenantId
from cells.api.problems import invalid, not_found, query_fault
from cells.api.queries import StatsQuery
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.spread.sums import minutes_of_all, named
from cells.contract import Scope
from cells.domain import ids
from cells.ports import LAG_BOUNDS_MS

routes = Routes("Statistics")

_SPAN = timedelta(hours=1)
_LONGEST = timedelta(days=7)
_COUNTS = ("started", "succeeded", "failed", "retried", "cancelled", "skipped")


@routes.add(
    "GET",
    "/v1/stats",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The minutes.", shapes.Stats)},
    problems=(404,),
)
async def read_stats(call: Call, query: Annotated[StatsQuery, Query()]) -> Response:
    """Read the statistics of at most seven days, per minute. Minutes without runs are left out.

    Of a target (`target_id`) they tell of the calls that ended in a minute, and how long those took;
    of a job (`job_id`) of its occurrences by the minute they were scheduled for, the newest 100,000
    at most.
    """
    until = query.until or call.services.now()
    since = query.since or until - _SPAN
    if since >= until:
        raise invalid([query_fault("since", "must lie before until")])
    if until - since > _LONGEST:
        raise invalid([query_fault("since", "lies more than 7 days before until")])
    if query.target_id is not None and query.job_id is not None:
        raise invalid([query_fault("job_id", "cannot be combined with target_id")])
    if query.target_id is not None:
        return await _of_target(call, query.target_id, since, until)
    if query.job_id is not None:
        return await _of_job(call, query.job_id, since, until)
    own = await call.services.store.stats(call.tenant_id, since=since, until=until)
    rows, silent = await minutes_of_all(call, call.tenant_id, own, since=since, until=until)
    return answer(
        {
            "since": instant(since),
            "until": instant(until),
            "minutes": [{"minute": instant(row["minute"])} | figures([row]) for row in rows],
            "total": {"minute": instant(since)} | figures(rows),
        }
        | named(silent)
    )


@routes.add(
    "GET",
    "/internal/tenants/{tenant_id}/minutes",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("What a tenant's statistics are made of.", None)},
)
async def read_minutes(call: Call, tenant_id: TenantId, query: Annotated[StatsQuery, Query()]) -> Response:
    """Read a tenant's minutes with their histograms, or those of a target: another store of the cell adds
    them to its own."""
    tenant = ids.decode(ids.TENANT, tenant_id)
    if tenant is None:
        raise not_found("tenant")
    until = query.until or call.services.now()
    since = query.since or until - _SPAN
    store = call.services.store
    rows: Sequence[Mapping[str, Any]]
    if query.target_id is not None:
        rows = await store.target_stats(tenant, query.target_id, since=since, until=until)
    else:
        rows = await store.stats(tenant, since=since, until=until)
    return answer({"items": [dict(row) for row in rows]})


async def _of_target(call: Call, target_id: str, since: datetime, until: datetime) -> Response:
    await found_target(call, target_id)
    own = await call.services.store.target_stats(call.tenant_id, target_id, since=since, until=until)
    rows, silent = await minutes_of_all(
        call, call.tenant_id, own, since=since, until=until, target_id=target_id
    )
    return answer(
        {
            "since": instant(since),
            "until": instant(until),
            "minutes": [{"minute": instant(row["minute"])} | _of_calls([row]) for row in rows],
            "total": {"minute": instant(since)} | _of_calls(rows),
        }
        | named(silent)
    )


def _of_calls(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    figures = calls(rows)
    return {
        "started": figures.pop("calls"),
        **{name: figures.pop(name) for name in ("succeeded", "failed", "retried")},
        "cancelled": 0,
        "skipped": 0,
        **dict.fromkeys(("lag_p50_ms", "lag_p99_ms", "lag_max_ms", "lag_mean_ms")),
        **{name: figures[name] for name in ("call_p50_ms", "call_p95_ms", "call_max_ms")},
    }


def calls(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Minutes of a target's calls added up."""
    shown: dict[str, Any] = {
        name: sum(row[name] for row in rows) for name in ("succeeded", "failed", "retried")
    }
    shown["calls"] = sum(shown.values())
    counts = [sum(column) for column in zip(*(row["ms_le"] for row in rows), strict=True)]
    most = max((row["ms_max"] for row in rows), default=0)
    shown["call_p50_ms"] = quantile(counts, 0.50, most)
    shown["call_p95_ms"] = quantile(counts, 0.95, most)
    shown["call_max_ms"] = most if shown["calls"] else None
    return shown


async def _of_job(call: Call, job_id: str, since: datetime, until: datetime) -> Response:
    row = await found_job(call, job_id_of(job_id))
    *minutes, total = await call.services.store.job_stats(
        call.tenant_id, row.job_id, since=since, until=until
    )
    return answer(
        {
            "since": instant(since),
            "until": instant(until),
            "minutes": [dict(minute) | {"minute": instant(minute["minute"])} for minute in minutes],
            "total": dict(total) | {"minute": instant(since)},
        }
    )


def figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Minutes of a tenant's runs added up."""
    shown: dict[str, Any] = {name: sum(row[name] for row in rows) for name in _COUNTS}
    counts = [sum(column) for column in zip(*(row["lag_le"] for row in rows), strict=True)]
    most = max((row["lag_max_ms"] for row in rows), default=0)
    observed = sum(counts)
    shown["lag_p50_ms"] = quantile(counts, 0.50, most)
    shown["lag_p99_ms"] = quantile(counts, 0.99, most)
    shown["lag_max_ms"] = most if observed else None
    shown["lag_mean_ms"] = round(sum(row["lag_sum_ms"] for row in rows) / observed, 3) if observed else None
    return shown


def quantile(counts: Sequence[int], q: float, most: int) -> float | None:
    """A quantile from a histogram with one count per bound of `LAG_BOUNDS_MS` and one for the rest,
    straight lines between the bounds; never above the largest value seen. None without values."""
    total = sum(counts)
    if total == 0:
        return None
    rank, below, lower = q * total, 0, 0.0
    for count, bound in zip(counts, (*LAG_BOUNDS_MS, max(most, LAG_BOUNDS_MS[-1])), strict=True):
        if count and below + count >= rank:
            return round(min(lower + (bound - lower) * (rank - below) / count, float(most)), 3)
        below += count
        lower = float(bound)
    return float(most)
