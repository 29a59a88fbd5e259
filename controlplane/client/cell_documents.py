"""What the API shows of cells, where tenants live, and how full and late that is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.client.decoding import Document

_ENDED = frozenset({"DONE", "STOPPED"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Relocation(Document):
    """A cell that is being emptied (DRAIN) or filled (FILL); `progress` in tenants, `stuck` who cannot move
    now, and why."""

    relocation_id: str
    cell: str
    kind: str
    state: str
    at_once: int
    why: str
    progress: Mapping[str, Any] = field(default_factory=dict)
    stuck: Mapping[str, str] = field(default_factory=dict)
    created_at: datetime | None
    finished_at: datetime | None

    @property
    def over(self) -> bool:
        """Whether nothing follows."""
        return self.state in _ENDED


@dataclass(frozen=True, kw_only=True, slots=True)
class Site(Document):
    """A cell's presence in a region. `ready_at`: when it was first seen to work."""

    region: str
    primary: bool
    url: str
    database: str
    valkey: str
    ready_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell(Document):
    """A cell. `sites` and `relocation` of one that was asked for by its name."""

    name: str
    region: str
    kind: str
    state: str
    capacity_runs_per_second: int
    promised_runs_per_second: int
    tenants: int
    url: str | None
    ownership_epoch: int
    status_at: datetime | None
    status_error: str
    sites: Sequence[Site] = ()
    relocation: Relocation | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedCell(Document):
    """A cell that was added. `made`: it was not known before; `applied`: migrations applied now."""

    cell: Cell
    made: bool
    applied: Sequence[str] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Readiness(Document):
    """Whether a cell works, and all that it waits for."""

    ready: bool
    waits_for: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RelocationStep(Document):
    """A tenant that would move; without a `destination` it fits nowhere."""

    tenant_id: str
    job_runs_per_second: int
    source: str
    destination: str | None
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RelocationPlan(Document):
    """Who would move where. `refusal`: why it cannot be done whole."""

    steps: Sequence[RelocationStep] = ()
    nowhere: int
    refusal: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Region(Document):
    """A place with cells of its own."""

    name: str
    label: str
    created_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology(Document):
    """All regions with their cells, as documents."""

    regions: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement(Document):
    """Where a tenant lives. `explanation`: what its cell was chosen from."""

    tenant_id: str
    cell: str
    region: str
    epoch: int
    state: str
    why: str
    placed_at: datetime | None
    explanation: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice(Document):
    """Which cell a tenant would get, and why not the others."""

    cell: str | None
    why: str
    refused: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, Any] = field(default_factory=dict)
    n_plus_one: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestion(Document):
    """A move that would help; without a `destination` no cell could take the tenant."""

    tenant_id: str
    slug: str
    source: str
    destination: str | None
    used_runs_per_second: float
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestions(Document):
    """Tenants that keep a cell hot."""

    items: Sequence[Suggestion] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Owned(Document):
    """Who owns a cell by the ownership store. `agreed`: all that could be asked say the same."""

    cell: str
    region: str
    owner_region: str | None
    epoch: int | None
    renewals: int | None
    promotions: int | None
    recorded_epoch: int
    tenants: int
    agreed: bool
    drift: Sequence[str] = ()
    differences: Sequence[Mapping[str, Any]] = ()
    away: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Owners(Document):
    """The ownership map."""

    items: Sequence[Owned] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaUse(Document):
    """A quota and its use. `used` is None where that cannot be known now; `over` is DELAYED or REFUSED."""

    name: str
    quota: int
    used: float | None
    at_least: bool
    share: float | None
    measured: str
    over: str
    over_means: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Quotas(Document):
    """Every quota. `unknown`: why some of the use is not known."""

    items: Sequence[QuotaUse] = ()
    unknown: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class DelayPart(Document):
    """One thing that was waited for; `share` in percent."""

    part: str
    ms: int
    mean_ms: float | None
    share: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Delays(Document):
    """A period's delay, part by part: the tenant's own doing, or other tenants of its cell."""

    since: datetime | None
    until: datetime | None
    runs: int
    complete: bool
    waited_ms: int
    mean_ms: float | None
    parts: Sequence[DelayPart] = ()
    crowded_minutes: Sequence[Mapping[str, Any]] = ()
    sentence: str
