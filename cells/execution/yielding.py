"""Floods give way: beside urgent work, or beside other tenants' work of their own class, only so many calls
at once that the event loop comes round quickly.

Every call under way has its turn in each round of the loop. With a flood in all slots of a class a round
takes tens of milliseconds, and a call needs some ten rounds from its due time to its start. More calls at
once do not make a busy loop faster, only its rounds longer. So how long rounds take is measured: while
somebody else's work comes and they take too long, the slots of the flood are cut by a part, and given back
step by step as far as they are used. A flood that begins beside others begins with few. Where nobody else
is there, nobody gives way; nor do calls that wait for slow targets: they do not make the rounds long.
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
#: A round that takes so long leaves no time for small steps (seconds).
VERY_LATE_SECONDS = 0.040
#: Kept by a cut, given back by a step; where a flood begins, and the least (parts of a lane's slots).
CUT, GROWTH, START, LEAST = 0.7, 1 / 32, 1 / 8, 1 / 16
#: Calls that take so many rounds (and no less than that of a quick loop's) wait for their targets.
_ROUNDS_OF_A_CALL = 8
#: The pace of a lane is that of about the last so many looks.
_PACE_LOOKS = 4
#: Work of others that was begun so many seconds ago may be followed by more.
OTHERS_SECONDS = 2.0

_URGENT = (Priority.CRITICAL, Priority.HIGH)


class Share:
    """Which part of their slots those who give way may use. Pure."""

    def __init__(self) -> None:
        self.part = 1.0

    def step(self, *, late: float, beside: bool, used: bool) -> float:
        """Told how much later than asked for the loop came round, whether there is somebody to give way to,
        and whether those who give way use what they may."""
        if not beside:
            self.part = min(1.0, self.part * 2)
        elif late > VERY_LATE_SECONDS:
            self.part = LEAST
        elif late > LATE_SECONDS:
            self.part = max(LEAST, self.part * CUT)
        elif not used:
            # What nobody needs now would be a flood's from its first moment.
            self.part += max(-GROWTH, min(GROWTH, START - self.part))
        elif late < QUICK_SECONDS:
            self.part = min(1.0, self.part + GROWTH)
        return self.part


class Yielding:
    """Bounds the lanes of one executor."""

    def __init__(self, lanes: Mapping[Priority, Lane], clock: Clock):
        self._lanes = lanes
        self._clock = clock
        self._share = Share()
        self._begun = 0
        self._urgent_at = -OTHERS_SECONDS
        self._looked_at = clock.monotonic()
        self._paces = {priority: _Pace() for priority in lanes}

    @property
    def part(self) -> float:
        """The part of their slots that lanes may use now where they give way."""
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
        since, self._looked_at = now - self._looked_at, now
        for priority, lane in self._lanes.items():
            self._paces[priority].measure(lane.begun, since)
        giving_way = [
            lane
            for priority, lane in self._lanes.items()
            if self._gives_way(lane, now) and not self._paces[priority].waits(lane.running, late)
        ]
        part = self._share.step(late=late, beside=bool(giving_way), used=any(map(_used, giving_way)))
        for lane in self._lanes.values():
            lane.bound(round(lane.slots * part) if lane in giving_way else lane.slots)

    def _gives_way(self, lane: Lane, now: float) -> bool:
        if lane.priority not in _URGENT and now - self._urgent_at < OTHERS_SECONDS:
            return True
        return now - lane.shared_at < OTHERS_SECONDS


class _Pace:
    """How many calls of a lane begin in a second, lately."""

    def __init__(self) -> None:
        self._begun = 0
        self._pace = 0.0

    def measure(self, begun: int, seconds: float) -> None:
        """So many have begun, ever."""
        if seconds > 0:
            self._pace += ((begun - self._begun) / seconds - self._pace) / _PACE_LOOKS
            self._begun = begun

    def waits(self, running: int, late: float) -> bool:
        """Whether so many calls under way are waiting for answers, and not for the loop."""
        return running > max(late, LATE_SECONDS) * _ROUNDS_OF_A_CALL * self._pace + 1


def _used(lane: Lane) -> bool:
    return lane.running + len(lane.ready) >= lane.bounded * 3 // 4
