"""What people should hear of, and what the store does for it (a part of `ports.Store`)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cells.records import Fence

#: Events that are looked at, at most, for those of a type.
EVENTS_LOOKED_AT = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class EventRow:
    """An event of one tenant."""

    place: tuple[
        int, int, int
    ]  # in the feed (epoch, transaction, number): nothing is ever added before one that was read
    at: datetime
    type: str
    subject: str
    actor: str | None
    data: bytes  # JSON object


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundEvents:
    """Events; the place they were looked for up to (None: there are none at all), and whether looking on
    from there at once would find more."""

    events: Sequence[EventRow]
    reached: tuple[int, int, int] | None
    more: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """How far a tenant's events were read. Without a place: those since an instant."""

    tenant_id: uuid.UUID
    after: tuple[int, int, int] | None
    since: datetime


class EventStore(Protocol):
    """The feed of events. Most are written by the transactions that they tell of."""

    async def events(
        self,
        tenant_id: uuid.UUID,
        *,
        after: tuple[int, int, int] | None,
        type_: str | None,
        limit: int,
        looks: int = EVENTS_LOOKED_AT,
    ) -> FoundEvents:
        """The events behind a place, oldest first; without one the newest ones. `type_` is a type or
        its beginning up to a dot; it is looked for among the next `looks` events."""
        ...

    async def add_event(
        self,
        fence: Fence,
        *,
        type_: str,
        subject: str,
        actor: str | None,
        data: dict[str, object],
        host_id: int,
    ) -> None:
        """Tell of something that changes nothing else in the store."""
        ...

    async def add_intent(self, fence: Fence, *, verb: str, subject: str, host_id: int) -> None:
        """Note what is about to be done outside of the store, if this host may still act for the tenant:
        `NotOwner` or `LeaseLost` if not."""
        ...

    async def events_of_many(
        self, asked: Sequence[Asked], *, types: Sequence[str], looks: int
    ) -> Mapping[uuid.UUID, FoundEvents]:
        """The events of those types behind the places of several tenants, among the next `looks` of each.
        Tenants with nothing new are left out."""
        ...

    async def tell_late(self, *, after_seconds: int, host_id: int) -> int:
        """Tell tenants whose earliest occurrence waits for longer than that, and those whose does no more:
        each once. How many."""
        ...

    async def home_epoch(self) -> int:
        """The epoch of this cell; a takeover raises it."""
        ...
