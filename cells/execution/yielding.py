"""Less urgent calls give way: beside CRITICAL and HIGH work, only so many of them that the event loop
comes round quickly.

Every call under way has its turn in each round of the loop. With a flood of LOW calls in all of their slots
a round takes tens of milliseconds, and an urgent call needs some ten rounds from its due time to its start.
How long rounds take is measured; while urgent work comes and they take too long, the slots of LOW and
DEFAULT are cut by a part, and given back step by step. Without urgent work nobody gives way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from cells.domain.job import Priority
from cells.execution.lanes import Lane
from cells.ports import Clock

#: How often the loop is measured (seconds).
STEP_SECONDS = 0.05
#: A round that takes longer is too long; a shorter one leaves room (seconds).
LATE_SECONDS, QUICK_SECONDS = 0.010, 0.005
#: Kept by a cut, given back by a step, and the least (parts of a lane's slots).
CUT, GROWTH, LEAST = 0.7, 1 / 32, 1 / 16
#: Urgent work that was begun so many seconds ago may be followed by more.
URGENT_SECONDS = 2.0

_URGENT = (Priority.CRITICAL, Priority.HIGH)
_YIELDING = (Priority.DEFAULT, Priority.LOW)


class Share:
    """Which part of their slots the less urgent lanes may use. Pure."""

    def __init__(self) -> None:
        self.part = 1.0

    def step(self, *, late: float, urgent: bool) -> float:
        """Told how much later than asked for the loop came round, and whether urgent work has come lately."""
        if not urgent:
            self.part = min(1.0, self.part * 2)
        elif late > LATE_SECONDS:
            self.part = max(LEAST, self.part * CUT)
        elif late < QUICK_SECONDS:
            self.part = min(1.0, self.part + GROWTH)
        return self.part


class Yielding:
    """Bounds the lanes of one executor."""

    def __init__(self, lanes: Mapping[Priority, Lane], clock: Clock):
        self._lanes = lanes
        self._clock = clock
        self._share = Share()
        self._begun = -1
        self._urgent_at = -URGENT_SECONDS

    @property
    def part(self) -> float:
        """The part of their slots that less urgent lanes may use now."""
        return self._share.part

    async def run(self) -> None:
        """Measure for ever."""
        while True:
            asked = self._clock.monotonic() + STEP_SECONDS
            await asyncio.sleep(STEP_SECONDS)
            self.look(late=max(0.0, self._clock.monotonic() - asked))

    def look(self, *, late: float) -> None:
        """One measurement."""
        now = self._clock.monotonic()
        urgent = [self._lanes[priority] for priority in _URGENT]
        begun = sum(lane.begun for lane in urgent)
        if begun != self._begun or any(lane.ready or lane.running for lane in urgent):
            self._begun, self._urgent_at = begun, now
        part = self._share.step(late=late, urgent=now - self._urgent_at < URGENT_SECONDS)
        for priority in _YIELDING:
            lane = self._lanes[priority]
            lane.bound(round(lane.slots * part))
