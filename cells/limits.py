"""What executors tell each other about targets (a part of `ports.Queue`).

Each executor reports what it saw of the targets it calls, a few times a second and all in one round
trip, and is told its share of their limits. Work for a target that cannot take it now is parked, under
the target, and comes back with such an answer.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cells.domain.breaker import BreakerState
from cells.domain.capacity import Observed
from cells.records import Member

TargetKey = tuple[uuid.UUID, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetReport:
    """One executor's view of one target since its last report."""

    key: TargetKey
    initial: int
    most: int
    running: int = 0  # calls under way
    wanted: int = 0  # slots it could use now
    held: int = 0  # claims it has for the target, calls under way included
    ahead: int = 0  # claims it may hold beyond its share, because calls are fast
    free: bool = False  # parked work need not wait: the target is not called any more
    members: tuple[int, int, int, int] = (0, 0, 0, 0)  # parked members it has room for, by class
    observed: Observed
    known_limit: float = 0.0  # for a board that forgot; 0: none


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetShare:
    """What one executor may do with one target until its next report."""

    calls: int  # it may have under way
    limit: float  # of all executors together
    breaker: BreakerState
    until_ms: int  # OPEN: when it is probed
    paused_until_ms: int  # as the target asked for
    remaining: int | None  # of its quota, as the target said
    parked: int
    broke: bool = False  # with this report
    recovered: bool = False
    members: Sequence[Member] = ()  # parked ones, to be claimed


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """The answer to a batch of reports."""

    executors: int  # alive, with this one
    shares: Sequence[TargetShare]  # as the reports
    forsaken: Sequence[TargetKey]  # targets with parked work that no executor looks after


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitMinute:
    """One minute of a target's limit."""

    minute: int  # since the epoch
    lowest: int  # calls at once that all executors might have
    latest: int
    parked: int  # at most
    breaker: BreakerState  # the worst


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetBoard:
    """What is known of a target, for people."""

    limit: float
    usable: int  # calls at once now: less than the limit while it is paused, broken or told its quota
    breaker: BreakerState
    until_ms: int
    paused_until_ms: int
    remaining: int | None
    renews_ms: int
    executors: int
    parked: tuple[int, int, int, int]  # by class
    minutes: Sequence[LimitMinute]  # of the last hour, oldest first


@dataclass(frozen=True, kw_only=True, slots=True)
class Drill:
    """Duplicates delivered to one target, and the latest that it did not cope with."""

    tenant_id: uuid.UUID
    target_id: str
    sent: int = 0
    coped: int = 0
    failed_run: str | None = None
    failed_status: int | None = None
    failed_error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillRow:
    """All duplicates a target ever got."""

    sent: int
    coped: int
    at: datetime
    failed_run: str | None
    failed_at: datetime | None
    failed_status: int | None
    failed_error: str | None


class LimitStore(Protocol):
    """The store's part (a part of `ports.Store`)."""

    async def member_targets(self, members: Sequence[Member]) -> Sequence[str | None]:
        """The id of the target that each member would call; None where it is not known."""
        ...

    async def add_drills(self, drills: Sequence[Drill], *, host_id: int) -> None:
        """Add up what came of duplicates; those of targets that are gone are left out."""
        ...

    async def drill(self, tenant_id: uuid.UUID, target_id: str) -> DrillRow | None:
        """What came of a target's duplicates, if it got any."""
        ...


class LimitBoard(Protocol):
    """Shared limits. Losing them is harmless: executors go on with what they know."""

    async def exchange(self, executor: str, reports: Sequence[TargetReport], *, lease_ms: int) -> Shares:
        """Report, and be told. What an executor holds lapses after the lease."""
        ...

    async def park(self, members: Sequence[tuple[Member, str]]) -> None:
        """Put popped members aside, each with the id of its target."""
        ...

    async def target_board(self, key: TargetKey) -> TargetBoard | None:
        """What is known of a target; None if no executor called it lately."""
        ...

    async def parked_for(self, members: Sequence[Member]) -> Sequence[str | None]:
        """The target each member is parked for, if it is."""
        ...

    async def take_places(self, wanted: Mapping[uuid.UUID, int]) -> Mapping[uuid.UUID, int]:
        """What begins without coming through the release gate takes its tenant's room below the quota of
        running runs all the same: how many of those wanted may begin, of tenants that are near it. They count
        from now on."""
        ...

    async def give_places(self, unused: Mapping[uuid.UUID, int]) -> None:
        """So many of those have not begun."""
        ...
