"""When the runs of silent workers are taken back.

One worker that dies is no news: its runs are taken back at once. When many leases end together it is
mostly the way of the heartbeats that was down, on our side; taking everything back would double all
the work just as its workers are heard again. So the reaper holds until heartbeats or polls have
flowed for two intervals, or for ten minutes (they may really be dead), and then takes back what is
still silent, the oldest first, at a rate that others can bear.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass

#: So many leases, and such a share of all, that end within a minute are unusual.
UNUSUAL_COUNT = 20
UNUSUAL_SHARE = 0.10
WINDOW_SECONDS = 60.0
#: How long heartbeats or polls have to flow, in intervals, and how long the hold lasts at most.
FLOWING_INTERVALS = 2
LONGEST_HOLD_SECONDS = 600.0
#: Taken back per second after a hold.
RECOVERY_RATE = 50.0
#: An interval is at least and at most this long (seconds).
SHORTEST_INTERVAL, LONGEST_INTERVAL = 2.0, 120.0


class Mode(enum.StrEnum):
    """What the reaper is doing."""

    FLOWING = "FLOWING"  # takes back at once
    HOLDING = "HOLDING"  # takes nothing back
    RECOVERING = "RECOVERING"  # takes back at a capped rate


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """The leases of workers at one moment. Seconds; `at` is of a clock that only goes forward."""

    at: float
    live: int
    expired: int  # past their margin, not taken back
    interval: float  # the longest heartbeat interval among the expired
    contact_age: float | None  # since anybody was heard of; None: never


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """How many to take back now, the oldest first, and whether the mode has changed."""

    take: int
    mode: Mode
    changed: bool


class ReapPolicy:
    """Remembers what it did; told of each look, and of what was taken back."""

    def __init__(self) -> None:
        self.mode = Mode.FLOWING
        self._taken: deque[tuple[float, int]] = deque()
        self._held_since = 0.0
        self._flowing_since: float | None = None
        self._interval = SHORTEST_INTERVAL
        self._last = 0.0
        self._allowance = 0.0

    def took(self, at: float, count: int) -> None:
        """So many were taken back."""
        if count and self.mode is Mode.FLOWING:
            self._taken.append((at, count))

    def decide(self, look: Look) -> Verdict:
        """What to do now."""
        before = self.mode
        while self._taken and self._taken[0][0] <= look.at - WINDOW_SECONDS:
            self._taken.popleft()
        if self.mode is Mode.FLOWING and self._unusual(look):
            self._hold(look)
        elif self.mode is Mode.HOLDING:
            self._wait(look)
        elif self.mode is Mode.RECOVERING and look.expired == 0:
            self._flow()
        take = look.expired if self.mode is Mode.FLOWING else self._share(look)
        self._last = look.at
        return Verdict(take=take, mode=self.mode, changed=self.mode is not before)

    def _unusual(self, look: Look) -> bool:
        together = look.expired + sum(count for _, count in self._taken)
        return (
            look.expired > 0
            and together >= UNUSUAL_COUNT
            and together > UNUSUAL_SHARE * (look.live + together)
        )

    def _hold(self, look: Look) -> None:
        self.mode = Mode.HOLDING
        self._held_since = look.at
        self._flowing_since = None
        self._interval = SHORTEST_INTERVAL

    def _wait(self, look: Look) -> None:
        if look.expired == 0:
            self._flow()  # all of them came back
            return
        self._interval = min(max(self._interval, look.interval), LONGEST_INTERVAL)
        heard = None if look.contact_age is None else look.at - look.contact_age
        if heard is None or heard < self._held_since or look.contact_age > self._interval:  # type: ignore[operator]
            self._flowing_since = None
        elif self._flowing_since is None:
            self._flowing_since = look.at
        flows = self._flowing_since is not None and (
            look.at - self._flowing_since >= FLOWING_INTERVALS * self._interval
        )
        if flows or look.at - self._held_since >= LONGEST_HOLD_SECONDS:
            self.mode = Mode.RECOVERING
            self._allowance = 1.0

    def _share(self, look: Look) -> int:
        if self.mode is Mode.HOLDING:
            return 0
        self._allowance += min(look.at - self._last, 1.0) * RECOVERY_RATE
        take = min(look.expired, int(self._allowance))
        self._allowance -= take
        self._allowance = min(self._allowance, RECOVERY_RATE)
        return take

    def _flow(self) -> None:
        self.mode = Mode.FLOWING
        self._taken.clear()
