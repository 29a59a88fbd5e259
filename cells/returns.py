"""What came back with a region that was lost: entries of its tail, and what became of them."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import msgspec

from cells.records import TenantConfig


class Outcome(enum.StrEnum):
    """What became of an entry. Intents have one once they were judged; an effect's is seen in its run."""

    WAITING = "WAITING"  # an intent that was not judged yet
    APPLIED = "APPLIED"  # carried out here, under its own id
    IMPORTED = "IMPORTED"  # came in with the job or workflow that it belongs to
    ALREADY = "ALREADY"  # was done here, too
    CHANGED_SINCE = "CHANGED_SINCE"  # what it was based on has changed here: nothing was done
    UNCONFIRMED = "UNCONFIRMED"  # STRICT, and nobody was told that it holds: listed, nothing was done
    NOT_APPLIED = "NOT_APPLIED"  # of a kind that is not done again by itself: somebody may
    REFUSED = "REFUSED"  # what it needs is not here; the note says what
    REPEATED = "REPEATED"  # an effect: called again here, under the same key
    NOT_REPEATED = "NOT_REPEATED"  # an effect: it happened there only


@dataclass(frozen=True, kw_only=True, slots=True)
class ReturnedIntent:
    """What somebody had decided in the region that was lost, as it waits to be judged."""

    tenant_id: uuid.UUID
    region: str
    epoch: int  # of the cell, when it was written
    host_id: int
    seq: int
    position: int  # in its transaction
    at: datetime
    verb: str
    thing: str
    policy: str | None
    detail: bytes  # JSON: rows as that region has them
    tenant_state: str
    tenant_epoch: int
    config: TenantConfig
    #: A takeover was decided without its region, or from it without another one: what is STRICT may have been
    #: confirmed to somebody, and holds.
    waited_for: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ReturnedEntry:
    """A line of the reconciliation report."""

    region: str
    epoch: int
    at: datetime
    entry: int
    kind: str  # INTENT | CLAIMED | FINISHED | UNDER_WAY
    verb: str | None
    thing: str
    policy: str | None
    key: str | None  # of the run, as its target knows it
    run_epoch: int | None
    state: str | None  # that the run ended in there
    detail: bytes
    note: str | None
    settled_at: datetime | None
    here_state: str | None  # of the same run, here
    here_epoch: int | None
    here_finished_at: datetime | None
    outcome: Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Return:
    """A region's tail, as it was handed in."""

    region: str
    epoch: int  # of the owner it was handed in to
    began_at: datetime
    read_at: datetime | None
    transactions: int
    entries: int
    dropped: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Away:
    """A return that concerns a tenant who lives in another cell by now."""

    tenant_id: uuid.UUID
    region: str
    epoch: int  # of the owner it was handed in to
    move_id: uuid.UUID
    url: str  # of that cell


class AwayPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what is reported of it."""

    tenant_id: uuid.UUID
    region: str
    epoch: int
    rows: list[msgspec.Raw]  # of `reconciliation`
    until: int  # the last one's number
    last: bool


class ReturnStore(Protocol):
    """Reading what came back (a part of `ports.Store`)."""

    async def reconciliation(
        self, tenant_id: uuid.UUID, *, after: tuple[datetime, int] | None, limit: int
    ) -> Sequence[ReturnedEntry]:
        """A page of a tenant's report, oldest first."""
        ...

    async def returns(self) -> Sequence[Return]:
        """What was handed in to this cell, the latest first."""
        ...

    async def returned_counts(self) -> Sequence[tuple[uuid.UUID, str, str, str, int]]:
        """How many entries stand how: (tenant, region, kind, outcome, number)."""
        ...
