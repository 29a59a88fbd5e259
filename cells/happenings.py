"""What people should hear of, and what the store does for it (a part of `ports.Store`)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cells.records import Fence


@dataclass(frozen=True, kw_only=True, slots=True)
class EventRow:
    """An event of one tenant."""

    place: tuple[int, int]  # in the feed: nothing is ever added before one that was read
    at: datetime
    type: str
    subject: str
    actor: str | None
    data: bytes  # JSON object


class EventStore(Protocol):
    """The feed of events. Most are written by the transactions that they tell of."""

    async def events(
        self, tenant_id: uuid.UUID, *, after: tuple[int, int] | None, type_: str | None, limit: int
    ) -> Sequence[EventRow]:
        """The events behind a place, oldest first; without one the newest ones. `type_` is a type or
        its beginning up to a dot."""
        ...

    async def add_event(
        self, fence: Fence, *, type_: str, subject: str, actor: str, data: dict[str, object], host_id: int
    ) -> None:
        """Tell of something that changes nothing else in the store."""
        ...
