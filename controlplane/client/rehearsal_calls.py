"""The API's requests about rehearsals: a region is cut off on purpose, for operators' keys. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.client.decoding import Document
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.wire import Call, path, query, without_none

_ALL = "/v1/admin/rehearsals"
_ENDED = frozenset({"DONE", "FAILED"})


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsedCell(Document):
    """A cell that would take part. `refusal`: why it cannot."""

    cell: str
    epoch: int
    tenants: int
    standbys: Sequence[str] = ()
    behind_bytes: int | None
    refusal: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsalPlan(Document):
    """What would be cut off. `refusal`: why it cannot be begun now."""

    region: str
    cells: Sequence[RehearsedCell] = ()
    refusal: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rehearsal(Document):
    """A rehearsal. `until`: when the cut ends (or ended) by itself."""

    rehearsal_id: str
    region: str
    state: str
    why: str
    seconds: int
    cut_at: datetime | None
    until: datetime | None
    created_at: datetime | None
    finished_at: datetime | None

    @property
    def over(self) -> bool:
        """Whether nothing follows."""
        return self.state in _ENDED


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsalReport(Document):
    """What it proved: a line for each cell, and all together."""

    rehearsal: Mapping[str, Any] = field(default_factory=dict)
    cells: Sequence[Mapping[str, Any]] = ()
    together: Mapping[str, Any] = field(default_factory=dict)


def plan_rehearsal(region: str, *, cells: Sequence[str] = ()) -> Call[RehearsalPlan]:
    """What a cut of a region would touch. Cuts nothing."""
    return Call(
        method="GET",
        path=_ALL + ":plan",
        read=reads(RehearsalPlan),
        query=query(region=region, cells=",".join(cells) or None),
    )


def start_rehearsal(
    region: str,
    *,
    cells: Sequence[str] = (),
    seconds: int | None = None,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Rehearsal]:
    """Cut a region off from its cells' other sites for so long; it ends by itself."""
    return Call(
        method="POST",
        path=_ALL,
        read=reads(Rehearsal),
        body=without_none(region=region, cells=list(cells) or None, seconds=seconds, reason=reason),
        keyed=True,
        idempotency_key=idempotency_key,
    )


def list_rehearsals(
    *,
    region: str | None = None,
    state: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Rehearsal]]:
    """Rehearsals, the newest first."""
    return Call(
        method="GET",
        path=_ALL,
        read=reads_page(Rehearsal),
        query=query(region=region, state=state, limit=limit, cursor=cursor),
    )


def get_rehearsal(rehearsal_id: str) -> Call[Rehearsal]:
    """One rehearsal, and what it does now."""
    return Call(method="GET", path=path(_ALL + "/{id}", id=rehearsal_id), read=reads(Rehearsal))


def get_rehearsal_report(rehearsal_id: str) -> Call[RehearsalReport]:
    """What it proved."""
    return Call(method="GET", path=path(_ALL + "/{id}/report", id=rehearsal_id), read=reads(RehearsalReport))
