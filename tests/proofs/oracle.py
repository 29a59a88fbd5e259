"""oracle: for random expressions in every IANA zone, over twenty years around real transitions, the
next occurrence is later than what was asked for, monotone, and what walking real minutes finds."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cells.domain.faults import ScheduleError
from cells.domain.job import Dst, Gap, Overlap, Schedule, ScheduleType
from cells.domain.schedule import compile_schedule
from tests.unit.cells.domain import tzif
from tests.unit.cells.domain.oracle import Expression, truth

SECONDS = 150
YEARS = (2017, 2037)
_AROUND, _MARGIN = timedelta(hours=5), timedelta(hours=26)
#: Steps of a walk that no schedule may need for a stretch this short.
_BOUND = 60 * 10 + 10


def main() -> dict[str, Any]:
    """Zone after zone until the time is over, each at least once; what differed is listed."""
    seed = random.SystemRandom().randrange(2**32)
    draw = random.Random(seed)
    names = sorted(tzif.names())
    ends, cases, occurrences, refused = time.monotonic() + SECONDS, 0, 0, 0
    differences: list[str] = []
    rounds = 0
    while rounds == 0 or time.monotonic() < ends:
        draw.shuffle(names)
        for name in names:
            if rounds and time.monotonic() >= ends:
                break
            turn = _turn(draw, name)
            expression = _expression(draw, turn, name)
            gap, overlap = draw.choice(list(Gap)), draw.choice(list(Overlap))
            found = _compare(expression, name, turn, gap, overlap)
            if found is None:
                refused += 1
                continue
            cases += 1
            occurrences += found[0]
            if found[1]:
                differences.append(f"{name} {expression.text!r} {gap} {overlap} at {turn}: {found[1]}")
        rounds += 1
    return {
        "holds": not differences and cases > len(names) // 2,
        "seed": seed,
        "zones": len(names),
        "years": f"{YEARS[0]}-{YEARS[1]}",
        "expressions": cases,
        "never_fire": refused,
        "occurrences_compared": occurrences,
        "differences": differences[:20],
    }


def _turn(draw: random.Random, name: str) -> datetime:
    """A transition of the zone within the years, or any minute of them."""
    low, high = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in YEARS)
    found = [jump.at for jump in (*tzif.jumps(name), *tzif.watched(name)) if low <= jump.at < high]
    at = draw.choice(found) if found else draw.randrange(low, high) // 60 * 60
    return datetime.fromtimestamp(at, UTC)


def _field(draw: random.Random, low: int, high: int, near: int, star: float) -> tuple[str, frozenset[int]]:
    if draw.random() < star:
        return "*", frozenset(range(low, high + 1))
    kind = draw.choice(["one", "list", "range", "star step", "step"])
    if kind == "one":
        return str(near), frozenset({near})
    if kind == "list":
        some = sorted({near, draw.randint(low, high), draw.randint(low, high)})
        return ",".join(map(str, some)), frozenset(some)
    step = draw.randint(1, max(2, (high - low) // 2))
    if kind == "star step":
        return f"*/{step}", frozenset(range(low, high + 1, step))
    a = draw.randint(low, near)
    b = draw.randint(near, high)
    if kind == "range":
        return f"{a}-{b}", frozenset(range(a, b + 1))
    return f"{a}-{b}/{step}", frozenset(range(a, b + 1, step))


def _expression(draw: random.Random, turn: datetime, name: str) -> Expression:
    """One that probably fires around a transition."""
    wall = (turn + timedelta(minutes=draw.randint(-90, 90))).astimezone(ZoneInfo(name))
    parts = [
        _field(draw, 0, 59, wall.minute, 0.1),
        _field(draw, 0, 23, wall.hour, 0.2),
        _field(draw, 1, 31, wall.day, 0.7),
        _field(draw, 1, 12, wall.month, 0.8),
        _field(draw, 0, 6, wall.isoweekday() % 7, 0.7),
    ]
    return Expression(" ".join(text for text, _ in parts), *(values for _, values in parts))


def _compare(
    expression: Expression, name: str, turn: datetime, gap: Gap, overlap: Overlap
) -> tuple[int, str] | None:
    """How many occurrences were compared and what differed; None for one that can never fire."""
    policy = Dst(gap=gap, overlap=overlap)
    schedule = Schedule(type=ScheduleType.CRON, cron=expression.text, time_zone=name, dst=policy)
    try:
        compiled = compile_schedule(schedule)
    except ScheduleError:
        return None
    low, high = turn - _AROUND, turn + _AROUND
    real = truth(expression, ZoneInfo(name), gap, overlap, low - _MARGIN, high + _MARGIN)
    expected = [at for at in real.occurrences if low < at <= high]
    walked, at = [], low
    while (found := compiled.next(at)) is not None and found.at <= high:
        if found.at <= at or len(walked) > _BOUND:
            return len(walked), f"next({at}) is {found.at}"
        at = found.at
        walked.append(at)
    if walked != expected:
        return len(walked), f"{len(walked)} occurrences, {len(expected)} by brute force"
    if compiled.count(low, high) != len(expected):
        return len(walked), f"count says {compiled.count(low, high)} of {len(expected)}"
    return len(walked), ""
