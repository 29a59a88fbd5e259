"""A tenant's own figures for its Prometheus. The figures of a process never bear a tenant's name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from starlette.responses import PlainTextResponse, Response

from cells.api.internal import TenantId
from cells.api.problems import not_found
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.spread.sums import minutes_of_all, told_elsewhere, use_of_all
from cells.api.stats import figures
from cells.contract import Scope
from cells.domain import ids
from cells.pulling import COUNT_LIMIT, QueueRow

routes = Routes("Statistics")

_MINUTE = timedelta(minutes=1)
_LAG_OVER = timedelta(minutes=5)
_OUTCOMES = ("succeeded", "failed", "retried", "cancelled", "skipped")
_QUANTILES = {"0.5": "lag_p50_ms", "0.99": "lag_p99_ms"}

_Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A gauge with its samples."""

    name: str
    help: str
    samples: Sequence[_Sample]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Queue:
    """What is told of a task queue."""

    task_queue: str
    backlog: int
    oldest_seconds: float
    leases: int
    workers: int


@routes.add(
    "GET",
    "/v1/metrics",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("Gauges, in Prometheus' text format.", None)},
    plain=True,
)
async def read_metrics(call: Call) -> Response:
    """Read the tenant's figures as a Prometheus scrapes them: runs of the newest whole minute by outcome,
    how late runs started over five minutes, what waits and is under way, and each task queue.
    Scrape it once a minute, with the key as the bearer token."""
    services = call.services
    now = services.now()
    minute = now.replace(second=0, microsecond=0) - _MINUTE
    since, until = minute - _LAG_OVER + _MINUTE, minute + _MINUTE
    own, use, queues = await asyncio.gather(
        services.store.stats(call.tenant_id, since=since, until=until),
        services.store.tenant_use(call.tenant_id, most_timers=COUNT_LIMIT, most_runs=COUNT_LIMIT, now=now),
        services.store.task_queues(call.tenant_id),
    )
    rows, silent = await minutes_of_all(call, call.tenant_id, own, since=since, until=until)
    counted = await use_of_all(
        call,
        call.tenant_id,
        {
            "job_runs_per_second": 0,
            "pending_timers": use.pending_timers,
            "running_runs": use.running_runs,
            "strict_jobs_per_second": use.strict_in_busiest_second,
        },
    )
    others, _ = await told_elsewhere(call, call.tenant_id, "task-queues")
    told = [_queue(row) for row in queues] + [_Queue(**item) for each in others for item in each["items"]]
    families = [*_of_runs(rows, minute), *_of_use(counted), *_of_queues(told), _of_regions(silent)]
    text = exposition(families)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def _of_runs(rows: Sequence[Mapping[str, object]], minute: datetime) -> list[Family]:
    newest = figures([row for row in rows if row["minute"] == minute])
    recent = figures(rows)
    return [
        Family(
            name="clockhouse_runs_started",
            help="Runs whose first attempt began in the newest whole minute.",
            samples=[({}, newest["started"])],
        ),
        Family(
            name="clockhouse_runs",
            help="Runs of the newest whole minute, by outcome.",
            samples=[({"outcome": outcome}, newest[outcome]) for outcome in _OUTCOMES],
        ),
        Family(
            name="clockhouse_dispatch_lag_seconds",
            help="Start minus due time of first attempts over five minutes; absent without any.",
            samples=[
                ({"quantile": quantile}, recent[name] / 1000)
                for quantile, name in _QUANTILES.items()
                if recent[name] is not None
            ],
        ),
    ]


@routes.add(
    "GET",
    "/internal/tenants/{tenant_id}/task-queues",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("Figures of a tenant's task queues.", None)},
)
async def read_queues(call: Call, tenant_id: TenantId) -> Response:
    """Read the figures of a tenant's task queues: another store of the cell adds them to its own."""
    tenant = ids.decode(ids.TENANT, tenant_id)
    if tenant is None:
        raise not_found("tenant")
    rows = await call.services.store.task_queues(tenant)
    return answer({"items": [asdict(_queue(row)) for row in rows]})


def _of_regions(silent: Sequence[str]) -> Family:
    return Family(
        name="clockhouse_region_unreachable",
        help="Regions that do not answer: what is kept there alone is not counted; absent if all do.",
        samples=[({"region": region}, 1) for region in silent],
    )


def _of_use(use: Mapping[str, float]) -> list[Family]:
    return [
        Family(
            name="clockhouse_timers_waiting",
            help=f"Jobs and retries that wait for their time, counted up to {COUNT_LIMIT}.",
            samples=[({}, min(use["pending_timers"], COUNT_LIMIT))],
        ),
        Family(
            name="clockhouse_runs_under_way",
            help=f"Runs that have begun and not ended, counted up to {COUNT_LIMIT}.",
            samples=[({}, min(use["running_runs"], COUNT_LIMIT))],
        ),
    ]


def _of_queues(queues: Iterable[_Queue]) -> list[Family]:
    told = [({"task_queue": queue.task_queue}, queue) for queue in _by_name(queues)]
    return [
        Family(
            name="clockhouse_task_queue_backlog",
            help=f"Tasks that wait for a worker, counted up to {COUNT_LIMIT}.",
            samples=[(labels, queue.backlog) for labels, queue in told],
        ),
        Family(
            name="clockhouse_task_queue_oldest_ready_seconds",
            help="How long the oldest waiting task has been due; 0 if none waits.",
            samples=[(labels, queue.oldest_seconds) for labels, queue in told],
        ),
        Family(
            name="clockhouse_task_queue_leases",
            help="Tasks that workers hold.",
            samples=[(labels, queue.leases) for labels, queue in told],
        ),
        Family(
            name="clockhouse_task_queue_workers",
            help="Workers that polled lately.",
            samples=[(labels, queue.workers) for labels, queue in told],
        ),
    ]


def _by_name(queues: Iterable[_Queue]) -> list[_Queue]:
    """Each queue once, whichever stores have tasks of it; the same workers poll all of them."""
    found: dict[str, _Queue] = {}
    for queue in queues:
        known = found.get(queue.task_queue)
        found[queue.task_queue] = (
            queue
            if known is None
            else _Queue(
                task_queue=queue.task_queue,
                backlog=known.backlog + queue.backlog,
                oldest_seconds=max(known.oldest_seconds, queue.oldest_seconds),
                leases=known.leases + queue.leases,
                workers=max(known.workers, queue.workers),
            )
        )
    return [found[name] for name in sorted(found)]


def _queue(row: QueueRow) -> _Queue:
    oldest = row.oldest_due_at
    return _Queue(
        task_queue=row.task_queue,
        backlog=row.backlog,
        oldest_seconds=0.0 if oldest is None else max(0.0, (row.now - oldest).total_seconds()),
        leases=row.leases,
        workers=row.workers,
    )


def exposition(families: Iterable[Family]) -> str:
    """The text format, version 0.0.4; families without samples are left out."""
    lines = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} gauge"]
        for labels, value in family.samples:
            named = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(f"{family.name}{'{' + named + '}' if named else ''} {value!r}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
