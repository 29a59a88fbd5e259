"""Where the living begin in an index that keeps an entry of everything that has died.

While somebody's transaction is open nothing dead leaves an index, and a look that begins at its start walks
all of it, longer each time. A front remembers where the oldest was found, and the next look begins there.
What comes to life before that (a task that is tried again keeps its place in the order) is found by a look
from the beginning: as often as such looks may take a small share of the time.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from cells.pulling import QueueId
from cells.store.arrays import from_datetime, instants

#: The part of the time that looks from the beginning may take.
SHARE = 0.05
#: Where nothing lives the next look begins this long ago: clocks differ, transactions take their time.
MARGIN = timedelta(seconds=10)
#: Tasks that came back before others are looked for this often where there is no lack (seconds).
READY_SECONDS = 1.0
_CLASSES = ("critical", "high", "default", "low")
_KEPT = 10_000
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
#: No transaction that starts a run is open for so long; a lease is longer than nothing.
HELD_MARGIN = timedelta(seconds=60)
#: Places of a key are counted from the beginning this often (seconds), should the clock have been set back.
HELD_SECONDS = 600.0
#: A tenant and a concurrency key.
Key = tuple[uuid.UUID, str]


class Front:
    """Of one look over some parts. `seconds`: from one look from the beginning to the next, at least.
    `ahead`: what is found may lie ahead of now, and new things come before it. `margin`: where nothing lives
    the next look begins so long ago."""

    def __init__(self, parts: int = 1, *, seconds: float, ahead: bool, margin: timedelta = MARGIN):
        self._since = [BEGINNING] * parts
        self._ahead = ahead
        self._margin = margin
        self._seconds = seconds
        self._rested = 0.0  # steady clock: when a look from the beginning may be taken again
        self._next = 0.0  # ... and when it is to be
        self._deep = False

    def begin(self, now: float) -> Sequence[datetime]:
        """Where the look that is taken now begins, part by part."""
        self._deep = now >= self._next
        return [BEGINNING] * len(self._since) if self._deep else self._since

    def ended(self, firsts: Sequence[datetime | None], *, at: datetime, now: float, took: float) -> None:
        """The oldest that was found of each part, by a look that began `at` and took so many seconds until
        `now` (steady clock)."""
        nothing = at - self._margin
        if self._ahead:
            firsts = [None if first is None else min(first, nothing) for first in firsts]
        if self._deep:
            self._since = [nothing if first is None else first for first in firsts]
            self._rested = now + took / SHARE
            self._next = max(self._rested, now + self._seconds)
        else:
            self._since = [
                since if first is None else max(since, first)
                for since, first in zip(self._since, firsts, strict=True)
            ]

    @property
    def deep(self) -> bool:
        """Whether the look that is taken now is one from the beginning."""
        return self._deep

    def since(self, part: int = 0) -> datetime:
        """Where what lives begins, as far as is known."""
        return self._since[part]

    def came(self, part: int, at: datetime) -> None:
        """Something has come to life there, or may have been passed over."""
        self._since[part] = min(self._since[part], at)

    def more(self, now: float) -> bool:
        """Whether a look that did not find enough is worth another one from the beginning, at once."""
        if self._deep or now < self._rested:
            return False
        self._next = now
        return True


class ReadyFronts:
    """The READY tasks of each queue, class by class."""

    def __init__(self) -> None:
        self._fronts: dict[QueueId, Front] = {}

    def came(self, queue: QueueId, priority: int, due_at: datetime) -> None:
        """A task was offered, perhaps one that is due earlier than those that wait."""
        front = self._fronts.get(queue)
        if front is not None:
            front.came(priority, due_at)

    def forget(self, queue: QueueId) -> None:
        """Tasks came back to a queue: the next look begins at the beginning."""
        self._fronts.pop(queue, None)

    def look(self, queues: Sequence[QueueId]) -> ReadyLook:
        """A look at some queues, taken now."""
        if len(self._fronts) > _KEPT:
            self._fronts.clear()
        for queue in queues:
            if queue not in self._fronts:
                self._fronts[queue] = Front(len(_CLASSES), seconds=READY_SECONDS, ahead=False)
        return ReadyLook([self._fronts[queue] for queue in queues])


class ReadyLook:
    """One look at some queues."""

    def __init__(self, fronts: Sequence[Front]):
        self._fronts = fronts
        self._at, self._began = datetime.now(UTC), time.monotonic()
        self._starts = [front.begin(self._began) for front in fronts]

    def columns(self) -> dict[str, object]:
        """Where it begins, class by class and queue by queue."""
        return {
            name: instants([from_datetime(start[n]) for start in self._starts])
            for n, name in enumerate(_CLASSES)
        }

    @property
    def deep(self) -> bool:
        """Whether it begins at the beginning of some queue, and decides where others do."""
        return any(front.deep for front in self._fronts)

    def ended(
        self,
        counts: Sequence[int],
        found: Iterable[tuple[int, int, datetime]],
        shut: Iterable[tuple[int, int]] = (),
    ) -> bool:
        """Told what was found (the queue's place, class and due time; of each `counts` were wanted), and of
        which queues and classes nothing is handed out now, whatever waits there: whether a further look,
        from the beginning, may find what a queue lacks."""
        now = time.monotonic()
        firsts: list[list[datetime | None]] = [[None] * len(_CLASSES) for _ in self._fronts]
        lacking = list(counts)
        for queue, priority, due_at in found:
            first = firsts[queue][priority]
            firsts[queue][priority] = due_at if first is None else min(first, due_at)
            lacking[queue] -= 1
        again = False
        for front, first_of_class, lack in zip(self._fronts, firsts, lacking, strict=True):
            front.ended(first_of_class, at=self._at, now=now, took=now - self._began)
            again |= lack > 0 and front.more(now)
        for queue, priority in shut:
            self._fronts[queue].came(priority, BEGINNING)
        return again


class HeldFronts:
    """The runs that hold places of concurrency keys, by when their leases end. No look may miss one: what
    has been started since a look ends later than that look began, and what lived then was found."""

    def __init__(self) -> None:
        self._since: dict[Key, datetime] = {}
        self._next: dict[Key, float] = {}  # steady clock: when all of it is looked at again

    def begin(self, keys: Sequence[Key], now: float) -> list[datetime]:
        """Where a look that is taken now begins, key by key."""
        if len(self._since) + len(keys) > _KEPT:
            self._since.clear()
            self._next.clear()
        return [
            self._since.get(key, BEGINNING) if now < self._next.get(key, now) else BEGINNING for key in keys
        ]

    def ended(self, key: Key, since: datetime, first: datetime | None, *, at: datetime, now: float) -> None:
        """Of those that a look found from `since` on, when the first lease ends. It began `at` (the store's
        clock) and `now`."""
        nothing = at - HELD_MARGIN
        self._since[key] = nothing if first is None else min(first, nothing)
        if since == BEGINNING:
            self._next[key] = now + HELD_SECONDS
