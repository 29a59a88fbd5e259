"""Bulkheads: the slots of one priority class, and the work that waits for them.

A lane holds claimed work that is ready to be called, and coroutines that call it. There are as
many coroutines as slots at most, so a flood of one class never takes another's slots. Nothing
here knows of stores or HTTP.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Collection

from cells.domain.job import Priority
from cells.execution.targets import Target
from cells.ports import Claim, Member

#: Shares of all slots, by class.
SHARES = {Priority.CRITICAL: 2, Priority.HIGH: 2, Priority.DEFAULT: 3, Priority.LOW: 1}
#: Claims of one tenant that may wait in a lane, for busy targets or another region, before it is passed over.
PARKED_PER_TENANT = 256
#: Claims beyond the free slots are for this many seconds of work (see `Lane.room`).
_AHEAD_SECONDS = 0.03


class Work:
    """A claim on its way to being called."""

    __slots__ = (
        "claim",
        "host_id",
        "lane",
        "last_start",
        "lease_until",
        "parked",
        "run_id",
        "target",
        "waits_since",
    )

    def __init__(self, claim: Claim, *, host_id: int, claimed_at: float, target: Target, lane: Lane):
        self.claim = claim
        self.host_id = host_id  # the incarnation that claimed it
        self.target = target
        self.lane = lane
        self.run_id = claim.idempotency_key
        self.parked = False
        self.waits_since = 0.0  # steady clock: when it first found its target busy
        #: Steady clock. Counted from when the claim was sent, so on the safe side of the store.
        self.lease_until = claimed_at + claim.lease_ms / 1000
        #: A call that starts later might outlive the lease.
        self.last_start = self.lease_until - claim.definition.target.timeout_seconds - LEASE_MARGIN_SECONDS


#: What a completed call may need to be recorded before its lease ends (seconds).
LEASE_MARGIN_SECONDS = 5.0


def shares_of(slots: int) -> dict[Priority, int]:
    """How the slots are divided; each class has at least one."""
    whole = sum(SHARES.values())
    return {priority: max(1, slots * share // whole) for priority, share in SHARES.items()}


class Lane:
    """One class. `call` does one piece of work. Workers come into being when they are needed."""

    def __init__(self, priority: Priority, slots: int, call: Callable[[Work], Awaitable[None]]):
        self.priority = priority
        self.slots = slots
        self.bounded = slots  # those it may use now (`yielding`)
        self.begun = 0  # calls, ever
        self.shared_at = float("-inf")  # steady clock: when work of several tenants came last
        self.ready: deque[Work] = deque()
        self.back: deque[tuple[Target, list[Member]]] = deque()  # were parked, to be claimed
        self.running = 0
        self.finished = 0
        self.expected = 0  # claims that are not ready yet, and have their places here
        self.wake = asyncio.Event()  # room came free, or the queue has something
        self.parked: dict[uuid.UUID, int] = {}
        self.full_tenants: set[uuid.UUID] = set()
        self._call = call
        self._idle: list[asyncio.Future[None]] = []
        self._workers: set[asyncio.Task[None]] = set()
        self._last_tenant: uuid.UUID | None = None
        self._pace = 0.0  # work finished per second, lately
        self._ahead = 0
        self._hungry = False
        self._closed = False

    def put(self, work: Work) -> None:
        """Have it called as soon as a slot is free."""
        self.ready.append(work)
        self._rouse()

    def bound(self, slots: int) -> None:
        """It may use so many of its slots from now on; at least one. What is being called goes on."""
        before, self.bounded = self.bounded, max(1, min(slots, self.slots))
        if self.bounded <= before:
            return
        for _ in range(min(self.bounded - self.running, len(self.ready))):
            self._rouse()
        if self._hungry and self.worthwhile():
            self.wake.set()

    def came(self, tenants: Collection[uuid.UUID], now: float) -> None:
        """Work of these tenants has been taken."""
        if not tenants:
            return
        if len(tenants) > 1 or self._last_tenant not in (None, *tenants):
            self.shared_at = now
        self._last_tenant = next(iter(tenants))

    def bring_back(self, target: Target, members: list[Member]) -> None:
        """Members that were parked for a target that can take them now."""
        self.back.append((target, members))
        self.wake.set()

    def room(self) -> int:
        """How many more claims this lane can use now. Where calls are fast, a little more than
        the free slots, so that these need not wait for the next claim; where they are slow, no more,
        because another host may be free."""
        return self.bounded + self._ahead - self.running - len(self.ready) - self.expected

    def worthwhile(self) -> bool:
        """Whether a claim is worth its round trip: under load not for one slot at a time."""
        return self.room() >= max(1, self._ahead // 2)

    async def wait_room(self) -> None:
        """Return when a claim may have become worthwhile, or somebody set `wake`."""
        self._hungry = True
        self.wake.clear()
        try:
            await self.wake.wait()
        finally:
            self._hungry = False

    def measure(self, seconds: float) -> None:
        """Told how long ago it was told last; keeps the pace."""
        if seconds > 0:
            part = min(1.0, seconds / 0.2)
            self._pace += part * (self.finished / seconds - self._pace)
            self._ahead = min(int(self._pace * _AHEAD_SECONDS), self.bounded // 2)
            self.finished = 0

    def park(self, work: Work, *, first: bool, now: float) -> None:
        """Its target is busy: let it wait there, without a slot."""
        if not work.parked:
            work.parked = True
            work.waits_since = now
        if first:
            work.target.waiting.appendleft(work)
        else:
            work.target.waiting.append(work)
        self.set_aside(work.claim.tenant_id)

    def unpark(self, work: Work) -> None:
        """It left its target's line."""
        self.take_back(work.claim.tenant_id)

    def expect(self, more: int) -> None:
        """So many claims more, or less, will be ready soon."""
        self.expected += more
        if more < 0 and self._hungry and self.worthwhile():
            self.wake.set()

    def set_aside(self, tenant: uuid.UUID) -> None:
        """A claim of this tenant waits without a slot. Where too many do, no more are taken."""
        waiting = self.parked.get(tenant, 0) + 1
        self.parked[tenant] = waiting
        if waiting >= PARKED_PER_TENANT:
            self.full_tenants.add(tenant)

    def take_back(self, tenant: uuid.UUID) -> None:
        """It waits no more."""
        waiting = self.parked.get(tenant, 1) - 1
        if waiting > 0:
            self.parked[tenant] = waiting
        else:
            self.parked.pop(tenant, None)
        if waiting < PARKED_PER_TENANT // 2 and tenant in self.full_tenants:
            self.full_tenants.discard(tenant)
            self.wake.set()

    async def close(self) -> None:
        """End the workers; what they are calling is cancelled."""
        self._closed = True
        workers = tuple(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _rouse(self) -> None:
        """Have an idle worker look at what is ready, or a new one where none is idle."""
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():
                waiter.set_result(None)
                return
        if len(self._workers) < self.slots and not self._closed:
            worker = asyncio.get_running_loop().create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        ready, call = self.ready, self._call
        while True:
            while ready and self.running < self.bounded:
                work = ready.popleft()
                self.running += 1
                self.begun += 1
                try:
                    await call(work)
                finally:
                    self.running -= 1
                    self.finished += 1
                    if self._hungry and self.worthwhile():
                        self.wake.set()
            waiter = loop.create_future()
            self._idle.append(waiter)
            await waiter
