"""What a cron expression means, by brute force: walk real minutes and look at the clock.

Nothing is shared with the product: expressions are drawn together with the sets they stand
for, time zones are read off one UTC minute after the other, and `fold` is never used.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from cells.domain.job import Gap, Overlap
from tests.unit.cells.domain import tzif

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Expression:
    """A cron text and the sets that whoever wrote it meant."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday

    @property
    def frequent(self) -> bool:
        return self.text.split()[1].startswith("*")

    @property
    def either(self) -> bool:
        fields = self.text.split()
        return not (fields[2].startswith("*") or fields[4].startswith("*"))

    def matches(self, wall: datetime) -> bool:
        if wall.minute not in self.minutes or wall.hour not in self.hours or wall.month not in self.months:
            return False
        in_days, in_weekdays = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        return in_days or in_weekdays if self.either else in_days and in_weekdays


@dataclass(frozen=True)
class Truth:
    """The occurrences in a stretch of time, and what each gap swallowed."""

    occurrences: list[datetime]
    swallowed: list[tuple[datetime, int]]


def truth(
    expression: Expression, tz: ZoneInfo, gap: Gap, overlap: Overlap, start: datetime, stop: datetime
) -> Truth:
    """All occurrences in [start, stop], minute by minute. Offsets must be whole minutes there."""
    clock: list[tuple[datetime, datetime]] = []
    at = start
    while at <= stop:
        clock.append((at, at.astimezone(tz).replace(tzinfo=None, fold=0)))
        at += MINUTE
    if expression.frequent:
        return Truth([at for at, wall in clock if expression.matches(wall)], [])
    readings: dict[datetime, list[datetime]] = {}
    for at, wall in clock:
        if expression.matches(wall):
            readings.setdefault(wall, []).append(at)
    found: set[datetime] = set()
    for instants in readings.values():
        found.update(
            {Overlap.FIRST: instants[:1], Overlap.SECOND: instants[-1:], Overlap.BOTH: instants}[overlap]
        )
    swallowed = []
    for (_, before), (at, after) in pairwise(clock):
        missing = 0
        while (before := before + MINUTE) < after:
            missing += expression.matches(before)
        if missing:
            swallowed.append((at, missing))
    if gap is Gap.SHIFT:
        return Truth(sorted(found | {at for at, _ in swallowed}), [])
    return Truth(sorted(found), swallowed)


# --- drawing ------------------------------------------------------------------------------
@st.composite
def field(draw: st.DrawFn, low: int, high: int, likely: int, *, star: int = 1) -> tuple[str, frozenset[int]]:
    """A field's text and meaning; `likely` is a value that matters, `star` how often `*` is wanted."""
    values = st.integers(low, high) | st.just(likely)
    kind = draw(st.sampled_from(["*"] * star + ["one", "list", "range", "step", "star step", "open step"]))
    a = draw(values)
    if kind == "*":
        return "*", frozenset(range(low, high + 1))
    if kind == "one":
        return str(a), frozenset({a})
    if kind == "list":
        some = draw(st.lists(values, min_size=2, max_size=4, unique=True))
        return ",".join(map(str, some)), frozenset(some)
    step = draw(st.integers(1, max(2, (high - low) // 2)))
    if kind == "star step":
        return f"*/{step}", frozenset(range(low, high + 1, step))
    if kind == "open step":
        return f"{a}/{step}", frozenset(range(a, high + 1, step))
    b = draw(st.integers(a, high))
    if kind == "range":
        return f"{a}-{b}", frozenset(range(a, b + 1))
    return f"{a}-{b}/{step}", frozenset(range(a, b + 1, step))


@st.composite
def expression_near(draw: st.DrawFn, wall: datetime) -> Expression:
    """An expression that probably fires near a wall time."""
    texts_and_sets = [
        draw(field(0, 59, wall.minute)),
        draw(field(0, 23, wall.hour)),
        draw(field(1, 31, wall.day, star=12)),
        draw(field(1, 12, wall.month, star=20)),
        draw(field(0, 6, wall.isoweekday() % 7, star=12)),
    ]
    texts, sets = zip(*texts_and_sets, strict=True)
    return Expression(" ".join(texts), *sets)


#: Since then every offset is whole minutes (Liberia was the last).
_WHOLE_MINUTES = int(datetime(1972, 2, 1, tzinfo=UTC).timestamp())


@st.composite
def jumps(draw: st.DrawFn) -> tuple[str, tzif.Jump]:
    """A zone and one of its real transitions, of the past or of these years."""
    listed = draw(st.booleans())
    name = draw(st.sampled_from(tzif.names()))
    found = [j for j in tzif.jumps(name) if j.at > _WHOLE_MINUTES] if listed else tzif.watched(name)
    if not found:  # without transitions: as good a place as any
        return name, tzif.Jump(_WHOLE_MINUTES + draw(st.integers(2**13, 2**25)) * 60, 0, 0)
    return name, draw(st.sampled_from(found))
