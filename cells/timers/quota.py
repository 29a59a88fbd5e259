"""The quota of running runs at the gate: how many more members of a tenant may pass.

Runs under way are counted in the store, by one statement for all tenants. Between two counts the gate
itself counts what it lets through of those tenants that are near their quota, and what polls and parked
work that comes back take of the same room (`lua/room.lua`). What passed lately may
not be in the store's count yet, so all that passed since the look before is taken for running: a tenant
is rather held a moment too long than let past its quota. What is held is delayed, never dropped.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from cells.ports import Clock, Store, TenantPlacement
from cells.timers.queue import Passage, ValkeyQueue

#: A tenant whose rates cannot fill its quota within so many seconds (and a second's burst)
#: need not be counted at the gate; nor can what has no rate, polls and parked work that comes back, bring
#: more than so many runs from one look to the next.
REACH_SECONDS, OTHER_WAYS = 6, 5000
#: Looks while somebody has used up half of a quota, and how much of the time counting may take at most.
SHORT_SECONDS, COUNTING_SHARE = 0.2, 0.02
#: An episode is over when a tenant has had room for so long (seconds).
CALM_SECONDS = 60.0


class RunningQuota:
    """Remembers its last look. Several dispatchers do each other no harm: what they tell is absolute."""

    def __init__(self, store: Store, queue: ValkeyQueue, clock: Clock):
        self._store = store
        self._queue = queue
        self._clock = clock
        self._seen: dict[uuid.UUID, Passage] = {}  # those near their quota, at the last look
        self._short = False
        self._full_at: dict[uuid.UUID, float] = {}  # told, or to be told: when they last had no room
        self._next = 0.0

    @property
    def short(self) -> bool:
        """Whether somebody has used up half of the quota, and must be looked at often."""
        return self._short

    @property
    def full(self) -> int:
        """Tenants that are at their quota, or have been within the last minute."""
        return len(self._full_at)

    def forget(self) -> None:
        """Valkey has lost what it was told."""
        self._seen, self._next = {}, 0.0

    async def look(self, tenants: Sequence[TenantPlacement], *, host_id: int) -> None:
        """Count, tell the gate, and tell people of who reached its quota."""
        began = self._clock.monotonic()
        if began < self._next:
            return
        placed = {t.tenant_id: t for t in tenants}
        # Those who may be near it now; of others nobody knows yet what is queued.
        asked = [
            t for t, placement in placed.items() if t in self._seen or _reach(placement) > _quota(placement)
        ]
        passages = await self._queue.passage(asked)
        counting = self._clock.monotonic()
        running = await self._store.running()
        self._next = began + SHORT_SECONDS / 2 + (self._clock.monotonic() - counting) / COUNTING_SHARE
        self._short = False
        near: dict[uuid.UUID, Passage] = {}
        limits: dict[uuid.UUID, int] = {}
        full: list[tuple[uuid.UUID, int, int]] = []
        for tenant, placement in placed.items():
            found = running.get(tenant)
            runs, told = (found.runs, found.told) if found is not None else (0, False)
            quota, passage = _quota(placement), passages.get(tenant, Passage(passed=0, queued=0))
            if quota - runs - passage.queued < _reach(placement):
                near[tenant] = passage
                before = self._seen.get(tenant, passage).passed
                # Fewer than before: the counter was lost with Valkey.
                limits[tenant] = min(before, passage.passed) + quota - runs - passage.queued
                left = limits[tenant] - passage.passed
                self._short |= left < quota / 2
                if left <= 0 and placement.state == "ACTIVE":
                    self._full_at[tenant] = began
                    if not told:
                        full.append((tenant, quota, runs))
            if told:
                self._full_at.setdefault(tenant, began)
        room = [t for t, at in self._full_at.items() if t not in placed or began - at >= CALM_SECONDS]
        await self._queue.put_room(limits, gone=self._seen.keys() - near.keys())
        self._seen = near
        if full or room:
            await self._store.tell_running(full=full, room=room, host_id=host_id)
        for tenant in room:
            del self._full_at[tenant]


def _quota(placement: TenantPlacement) -> int:
    return placement.config.running_runs


def _reach(placement: TenantPlacement) -> int:
    return max(placement.config.job_runs_per_second * (REACH_SECONDS + 1), OTHER_WAYS)
