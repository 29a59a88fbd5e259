"""What the store keeps of targets and of calls that try them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetRow:
    """A registered target. `auth` holds nothing secret."""

    tenant_id: uuid.UUID
    target_id: str
    state: str  # PENDING | APPROVED | DISABLED | GONE
    version: int
    base_url: str
    owner_team: str | None
    description: str | None
    max_concurrency: int
    initial_concurrency: int
    latency_slo_ms: int
    auth: dict[str, object]
    settings: dict[str, object]
    created_by: str
    created_at: datetime
    updated_at: datetime
    approved_by: str | None
    approved_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedSecret:
    """One generation of a target's secret, encrypted with the installation key."""

    generation: int
    purpose: str  # SIGNING | CREDENTIAL
    sealed: bytes
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialOutcome:
    """What came of a test call. Without a status there was no answer, and `error` says why."""

    url: str
    status: int | None
    error: str | None
    body: str | None  # its beginning
    latency_ms: int


# --- the journal -------------------------------------------------------------------------
