"""Approved targets, at most a second old, so that a creation need not read its target again.

Only what is approved is kept: a target that was just approved or registered is seen at once.
The executor checks again before each call.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

from cells.ports import Clock, Store, TargetRow

MAX_AGE_SECONDS = 1.0
_KEPT = 10_000

_Key = tuple[uuid.UUID, str, str]


class KnownTargets:
    """A read-through cache of approved targets, by id and by URL."""

    def __init__(self, store: Store, clock: Clock):
        self._store = store
        self._clock = clock
        self._known: dict[_Key, tuple[float, TargetRow]] = {}

    async def by_id(self, tenant_id: uuid.UUID, target_id: str) -> TargetRow | None:
        """The target of that id, whatever its state."""
        return await self._get(
            (tenant_id, "id", target_id), lambda: self._store.get_target(tenant_id, target_id)
        )

    async def by_url(self, tenant_id: uuid.UUID, url: str) -> TargetRow | None:
        """The approved target that a canonical URL lies under."""
        return await self._get(
            (tenant_id, "url", url.partition("?")[0]), lambda: self._store.find_target_by_url(tenant_id, url)
        )

    def forget(self, tenant_id: uuid.UUID) -> None:
        """A target of the tenant was changed here."""
        for key in [key for key in self._known if key[0] == tenant_id]:
            del self._known[key]

    async def _get(self, key: _Key, read: Callable[[], Awaitable[TargetRow | None]]) -> TargetRow | None:
        now = self._clock.monotonic()
        found = self._known.get(key)
        if found is not None and now - found[0] < MAX_AGE_SECONDS:
            return found[1]
        row = await read()
        if row is not None and row.state == "APPROVED":
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = (now, row)
        else:
            self._known.pop(key, None)
        return row
