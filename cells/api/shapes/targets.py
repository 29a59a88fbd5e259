"""Targets."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from cells.api.shapes.base import Shape


class TargetDrill(Shape):
    """Calls that are delivered twice on purpose."""

    duplicate_percent: int


class Target(Shape):
    """A registered target."""

    target_id: str
    state: Literal["PENDING", "APPROVED", "DISABLED", "GONE"]
    version: int
    base_url: str
    owner_team: str | None
    description: str | None
    max_concurrency: int
    initial_concurrency: int
    latency_slo_ms: int
    auth: dict[str, Any]
    drill: TargetDrill | None = Field(description="The idempotency drill; null: none.")
    created_by: str
    created_at: datetime
    updated_at: datetime
    approved_by: str | None
    approved_at: datetime | None


class TargetCreated(Target):
    """A target with a signing secret that is not shown again."""

    secret: str | None = Field(None, description="`whsec_…`: verifies the calls (Standard Webhooks).")


class TargetPage(Shape):
    """A page of targets."""

    items: list[Target]
    next_cursor: str | None


class RecentFailure(Shape):
    """A run that failed for good at a target."""

    run_id: str
    fingerprint: str
    http_status: int | None
    error: str | None
    failed_at: datetime


class LimitMinute(Shape):
    """One minute of a target's limit and answer times."""

    minute: datetime
    limit_lowest: int | None = Field(description="Calls at once; null: nobody called it then.")
    limit: int | None = Field(description="At the end of the minute.")
    parked: int = Field(description="Runs put aside, at most.")
    breaker: Literal["CLOSED", "OPEN", "HALF_OPEN"] = Field(description="The worst in that minute.")
    calls: int = Field(description="That ended.")
    call_mean_ms: float | None
    call_max_ms: int | None


class TargetLimit(Shape):
    """What the target can take now, as all executors of the cell share it."""

    allowed: int = Field(description="Calls at once: grows while it answers in time, halves on overload.")
    usable: int = Field(description="Of them now: none while it is paused or broken.")
    breaker: Literal["CLOSED", "OPEN", "HALF_OPEN"]
    reason: str | None = Field(description="Why not all that is allowed is used, or why work is parked.")
    until: datetime | None = Field(description="When it is tried again; null: as soon as there is room.")
    quota_remaining: int | None = Field(description="What the target's RateLimit field says is left.")
    executors: int = Field(description="That share the limit.")
    parked: int = Field(description="Runs put aside until there is room; it costs them no attempt.")
    history: list[LimitMinute] = Field(description="The last hour, the newest last.")


class DrillOutcome(Shape):
    """What came of calls that were delivered twice on purpose."""

    sent: int = Field(description="Duplicates.")
    coped: int = Field(description="Answered with success, 208 or 409.")
    last_sent_at: datetime
    failed_run_id: str | None = Field(description="The latest one it did not cope with.")
    failed_at: datetime | None
    failed_status: int | None
    failed_error: str | None


class TargetHealth(Shape):
    """How a target has been doing."""

    target_id: str
    state: Literal["PENDING", "APPROVED", "DISABLED", "GONE"]
    verdict: Literal["idle", "healthy", "slow", "failing"] = Field(
        description="failing: under 90 % of calls succeed; slow: p95 above latency_slo_ms; idle: no calls."
    )
    since: datetime
    until: datetime
    calls: int = Field(description="That ended in that time.")
    succeeded: int
    failed: int = Field(description="For good.")
    retried: int = Field(description="Failed, and will be tried again.")
    success_rate: float | None = Field(description="0 to 1.")
    call_p50_ms: float | None
    call_p95_ms: float | None
    call_max_ms: int | None
    latency_slo_ms: int
    in_flight: int = Field(description="Calls under way now.")
    max_concurrency: int
    limit: TargetLimit | None = Field(description="null: nobody has called it for two hours.")
    drill: DrillOutcome | None = Field(description="null: nothing was delivered twice.")
    recent_failures: list[RecentFailure] = Field(description="The latest ten in the dead-letter queue.")


class TargetTested(Shape):
    """What a target answered to a test call."""

    test_id: str = Field(description="The call's Idempotency-Key and webhook-id.")
    ok: bool = Field(description="It answered with 2xx.")
    url: str
    method: str
    status: int | None = Field(description="null: there was no answer.")
    error: str | None
    latency_ms: int
    body: str | None = Field(None, description="The answer's beginning; only with payloads:read.")
    body_hidden: bool | None = None
