"""The API's requests about many jobs at once, what is to come, and how targets do. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.client.decoding import Document
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.wire import Call, path, query, without_none


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledJob(Document):
    """A job of a selection, in short."""

    job_id: str
    name: str | None
    key: str | None
    status: str
    target_id: str | None
    next_run_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection(Document):
    """Jobs that are meant, frozen. Nothing is changed before it is applied by its hash."""

    selection_id: str
    action: str
    count: int
    hash: str
    sample: Sequence[SampledJob] = ()
    filter: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime | None
    expires_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedItem(Document):
    """A job that an operation could not change."""

    job_id: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation(Document):
    """A change of many jobs: RUNNING, STOPPED or DONE."""

    operation_id: str
    selection_id: str | None
    action: str
    state: str
    total: int
    processed: int
    done: int
    unchanged: int
    failed: int
    reasons: Mapping[str, Any] = field(default_factory=dict)
    failures: Sequence[FailedItem] = ()
    created_at: datetime | None
    finished_at: datetime | None

    @property
    def over(self) -> bool:
        """Whether nothing more will be changed by it."""
        return self.state != "RUNNING"


@dataclass(frozen=True, kw_only=True, slots=True)
class HerdMinute(Document):
    """A minute with something due."""

    minute: datetime
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Herd(Document):
    """How much will be due, minute by minute; minutes with nothing are left out."""

    since: datetime | None
    until: datetime | None
    minutes: Sequence[HerdMinute] = ()
    total: int
    peak: HerdMinute | None
    jobs: int | None
    truncated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetHealth(Document):
    """How a target has been doing: verdict idle, healthy, slow or failing."""

    target_id: str
    verdict: str
    calls: int
    succeeded: int
    failed: int
    retried: int
    success_rate: float | None
    call_p50_ms: float | None
    call_p95_ms: float | None
    call_max_ms: int | None
    latency_slo_ms: int | None
    in_flight: int | None
    max_concurrency: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetTested(Document):
    """What a target answered to one call."""

    ok: bool
    url: str | None
    method: str | None
    status: int | None
    error: str | None
    latency_ms: int | None
    body: str | None = None  # where the key may see payloads


# --- many jobs ---------------------------------------------------------------------------
def select_jobs(action: str, **filter_: Any) -> Call[Selection]:
    """Freeze which jobs are meant. `action`: pause, resume or cancel; conditions: `job_ids`, `state`,
    `target`, `tag`, `name_prefix`, `due_from`, `due_until`, and without any all jobs."""
    chosen = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in without_none(**filter_).items()
    }
    return Call(
        method="POST",
        path="/v1/selections",
        read=reads(Selection),
        body={"action": action, "filter": chosen},
    )


def get_selection(selection_id: str) -> Call[Selection]:
    """A selection; its sample as the jobs are now."""
    return Call(method="GET", path=path("/v1/selections/{id}", id=selection_id), read=reads(Selection))


def apply_selection(
    selection_id: str,
    hash: str,  # noqa: A002 - the API's word
    *,
    max_per_second: int | None = None,
) -> Call[Operation]:
    """Begin to change exactly the jobs that were selected; again: the operation that was begun."""
    return Call(
        method="POST",
        path=path("/v1/selections/{id}", id=selection_id) + ":apply",
        read=reads(Operation),
        body=without_none(hash=hash, max_per_second=max_per_second),
    )


def list_operations(
    *, state: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Operation]]:
    """Changes of many jobs, the latest first."""
    return Call(
        method="GET",
        path="/v1/operations",
        read=reads_page(Operation),
        query=query(state=state, limit=limit, cursor=cursor),
    )


def get_operation(operation_id: str) -> Call[Operation]:
    """An operation, and how far it is."""
    return Call(method="GET", path=path("/v1/operations/{id}", id=operation_id), read=reads(Operation))


def stop_operation(operation_id: str) -> Call[Operation]:
    """Change nothing more; what is done stays done."""
    return Call(
        method="POST",
        path=path("/v1/operations/{id}", id=operation_id) + ":stop",
        read=reads(Operation),
        repeatable=True,
    )


# --- what is to come, and targets --------------------------------------------------------
def read_herd(
    *, hours: int | None = None, target: str | None = None, priority: str | None = None
) -> Call[Herd]:
    """How many ticks are due in each minute of the coming hours (24)."""
    return Call(
        method="GET",
        path="/v1/herd",
        read=reads(Herd),
        query=query(hours=hours, target=target, priority=priority),
    )


def get_target_health(target_id: str, *, minutes: int | None = None) -> Call[TargetHealth]:
    """How a target has been doing in the last minutes (60)."""
    return Call(
        method="GET",
        path=path("/v1/targets/{id}", id=target_id) + "/health",
        read=reads(TargetHealth),
        query=query(minutes=minutes),
    )


def test_target(target_id: str, **call: Any) -> Call[TargetTested]:
    """Call a target once, signed as runs are; it is no run. `method`, `path`, `payload`, `headers`,
    `timeout_seconds` as a job has them."""
    return Call(
        method="POST",
        path=path("/v1/targets/{id}", id=target_id) + ":test",
        read=reads(TargetTested),
        body=without_none(**call),
    )
