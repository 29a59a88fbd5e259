"""The API's requests about moves of tenants between cells: operators' and a tenant's own. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.client.decoding import Document
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.wire import Call, path, query, without_none

_ALL, _OWN = "/v1/admin/moves", "/v1/tenant/moves"
#: From here on a move can only go on.
_HANDED = frozenset({"HANDOFF", "VERIFY", "CLEANUP", "DONE"})
_ENDED = frozenset({"DONE", "ABORTED"})


@dataclass(frozen=True, kw_only=True, slots=True)
class MovePlan(Document):
    """A move as it would begin. `promised`: runs a second promised on each cell, before and after."""

    tenant_id: str
    source: str
    destination: str
    why: str
    refused: Mapping[str, str] = field(default_factory=dict)
    promised: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class MoveStep(Document):
    """A stay of a move in a state. `event`: what ended it."""

    attempt: int
    state: str
    began_at: datetime | None
    ended_at: datetime | None
    event: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Move(Document):
    """A tenant on its way to another cell. `why` is what it does or waits for; `pause_ms` how long the
    tenant was sealed."""

    move_id: str
    tenant_id: str
    source: str
    destination: str
    state: str
    why: str
    choice: str
    attempt: int
    abort_requested: bool
    progress: Mapping[str, Any] = field(default_factory=dict)
    pause_ms: int | None
    new_epoch: int | None
    created_at: datetime | None
    changed_at: datetime | None
    finished_at: datetime | None
    steps: Sequence[MoveStep] = ()  # of one that was asked for by its id

    @property
    def over(self) -> bool:
        """Whether nothing follows."""
        return self.state in _ENDED

    @property
    def handed_over(self) -> bool:
        """Whether the tenant lives in the new cell, or is just about to."""
        return self.state in _HANDED


def _body(**given: Any) -> dict[str, Any]:
    return without_none(**given)


# --- operators ---------------------------------------------------------------------------
def plan_move(tenant_id: str, *, cell: str | None = None) -> Call[MovePlan]:
    """Where a tenant would move, and why. Moves nobody."""
    return Call(
        method="POST",
        path=_ALL,
        read=reads(MovePlan),
        body=_body(tenant_id=tenant_id, cell=cell, dry_run=True),
        repeatable=True,
    )


def start_move(
    tenant_id: str,
    *,
    cell: str | None = None,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Move]:
    """Begin to move a tenant while it works, to that cell or the one with the most room."""
    return Call(
        method="POST",
        path=_ALL,
        read=reads(Move),
        body=_body(tenant_id=tenant_id, cell=cell, reason=reason),
        keyed=True,
        idempotency_key=idempotency_key,
    )


def list_moves(
    *,
    tenant_id: str | None = None,
    cell: str | None = None,
    state: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Move]]:
    """Moves of tenants, the newest first."""
    return Call(
        method="GET",
        path=_ALL,
        read=reads_page(Move),
        query=query(tenant_id=tenant_id, cell=cell, state=state, limit=limit, cursor=cursor),
    )


def get_move(move_id: str) -> Call[Move]:
    """A move with its steps."""
    return Call(method="GET", path=path(_ALL + "/{id}", id=move_id), read=reads(Move))


def abort_move(move_id: str, *, reason: str | None = None) -> Call[Move]:
    """Have a move given up; until HANDOFF only."""
    return Call(
        method="POST",
        path=path(_ALL + "/{id}", id=move_id) + ":abort",
        read=reads(Move),
        body=_body(reason=reason),
        repeatable=True,
    )


# --- a tenant's own ----------------------------------------------------------------------
def plan_own_move(*, cell: str | None = None) -> Call[MovePlan]:
    """Where the key's tenant would move. Moves nobody."""
    return Call(
        method="POST", path=_OWN, read=reads(MovePlan), body=_body(cell=cell, dry_run=True), repeatable=True
    )


def start_own_move(
    *, cell: str | None = None, reason: str | None = None, idempotency_key: str | None = None
) -> Call[Move]:
    """Begin to move the key's tenant, where the installation lets tenants do so."""
    return Call(
        method="POST",
        path=_OWN,
        read=reads(Move),
        body=_body(cell=cell, reason=reason),
        keyed=True,
        idempotency_key=idempotency_key,
    )


def list_own_moves(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Move]]:
    """Moves of the key's tenant, the newest first."""
    return Call(method="GET", path=_OWN, read=reads_page(Move), query=query(limit=limit, cursor=cursor))


def get_own_move(move_id: str) -> Call[Move]:
    """One of the tenant's moves with its steps."""
    return Call(method="GET", path=path(_OWN + "/{id}", id=move_id), read=reads(Move))


def abort_own_move(move_id: str, *, reason: str | None = None) -> Call[Move]:
    """Have a move of the tenant given up, where the installation lets tenants do so."""
    return Call(
        method="POST",
        path=path(_OWN + "/{id}", id=move_id) + ":abort",
        read=reads(Move),
        body=_body(reason=reason),
        repeatable=True,
    )
