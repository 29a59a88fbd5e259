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
