"""The fair queue, as a model: start-time fair queueing between tenants.

Each tenant has a virtual start: how much service it has had, on a clock that runs with the
queue. The tenant with the smallest start is served next, its own earliest due member first,
and then moves one step back. A tenant that comes (back) starts at the queue's present time: it
neither collects credit while it has nothing to do nor pays for what others did meanwhile. One
that comes back before the queue's time has reached the start it left with goes on from there:
or whoever hands in one member at a time would always be first.
The Lua scripts in Valkey do the same; tests compare the two pop by pop.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

M = TypeVar("M", bound=Hashable)


@dataclass
class FairQueue(Generic[M]):
    """One priority's queue. Members are unique; a second add of one changes nothing."""

    time: int = 0  # the queue's virtual time: the start of the tenant served last
    starts: dict[str, int] = field(default_factory=dict)  # tenants that wait
    left: dict[str, int] = field(default_factory=dict)  # tenants that do not: the start they had
    waiting: dict[str, dict[M, int]] = field(default_factory=dict)  # member -> due, per tenant

    def __len__(self) -> int:
        return sum(map(len, self.waiting.values()))

    def add(self, tenant: str, member: M, due_ms: int) -> bool:
        """Queue a member; whether it was new."""
        mine = self.waiting.setdefault(tenant, {})
        if tenant not in self.starts:
            self.starts[tenant] = max(self.time, self.left.pop(tenant, 0))
        if member in mine:
            return False
        mine[member] = due_ms
        return True

    def remove(self, tenant: str, member: M) -> bool:
        """Take a member out unserved (cancelled, edited): its tenant is not charged."""
        mine = self.waiting.get(tenant, {})
        if mine.pop(member, None) is None:
            return False
        self._forget_if_empty(tenant)
        return True

    def pop(self, limit: int = 1, *, but_not: Collection[str] = ()) -> list[tuple[str, M]]:
        """Up to `limit` members. Ties go to the smaller tenant name and the smaller member,
        as sorted sets order them. Tenants in `but_not` are passed over; they save up nothing."""
        taken: list[tuple[str, M]] = []
        while len(taken) < limit and (able := self.starts.keys() - set(but_not)):
            start, tenant = min((max(self.time, self.starts[t]), t) for t in able)
            mine = self.waiting[tenant]
            member = min(mine, key=lambda m: (mine[m], m))
            del mine[member]
            self.time = start
            self.starts[tenant] = start + 1
            self._forget_if_empty(tenant)
            taken.append((tenant, member))
        return taken

    def refund(self, tenant: str, members: int = 1) -> None:
        """What was popped turned out stale: its tenant owes nothing for it. Never below the
        queue's time, or a tenant could save up credit."""
        for starts in (self.starts, self.left):
            if tenant in starts:
                starts[tenant] = max(self.time, starts[tenant] - members)

    def _forget_if_empty(self, tenant: str) -> None:
        if not self.waiting[tenant]:
            del self.waiting[tenant]
            self.left[tenant] = self.starts.pop(tenant)
