"""Targets."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from cells.api.shapes.base import Shape


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
