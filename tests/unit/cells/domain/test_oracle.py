"""The schedule engine against brute force, around real transitions of real zones."""

# ruff: noqa: DTZ001 - wall times are naive
from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cells.domain.cron import parse_cron
from cells.domain.faults import ScheduleError
from cells.domain.job import Dst, Gap, Overlap, Schedule, ScheduleType
from cells.domain.schedule import Compiled, compile_schedule
from cells.domain.walker import Cron
from tests.unit.cells.domain import tzif
from tests.unit.cells.domain.oracle import Expression, expression_near, jumps, truth

SECOND = timedelta(seconds=1)
#: Both sides of the transition: enough for an occurrence of most daily expressions.
AROUND = timedelta(hours=27)
#: Beyond that, so that no gap or overlap is cut off at the edge of what is walked.
MARGIN = timedelta(hours=26)

#: Where to ask: anywhere around the transition, and often just before and after it.
SECONDS = st.integers(-5400, 5400) | st.integers(-27 * 3600, 27 * 3600)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Expression, str, tzif.Jump, Gap, Overlap]:
    zone_name, jump = draw(jumps())
    wall = datetime.fromtimestamp(jump.at + draw(st.sampled_from([jump.before, jump.after])), UTC)
    wall += timedelta(minutes=draw(st.integers(-90, 90)))
    expression = draw(expression_near(wall.replace(tzinfo=None)))
    return expression, zone_name, jump, draw(st.sampled_from(Gap)), draw(st.sampled_from(Overlap))


def compiled_of(expression: Expression, zone_name: str, gap: Gap, overlap: Overlap) -> Compiled:
    return compile_schedule(
        Schedule(
            type=ScheduleType.CRON,
            cron=expression.text,
            time_zone=zone_name,
            dst=Dst(gap=gap, overlap=overlap),
        )
    )


@given(case=cases(), seconds=st.lists(SECONDS, min_size=4, max_size=4))
@settings(max_examples=400, deadline=None)
def test_every_minute_around_a_transition(
    case: tuple[Expression, str, tzif.Jump, Gap, Overlap], seconds: list[int]
) -> None:
    expression, zone_name, jump, gap, overlap = case
    try:
        compiled = compiled_of(expression, zone_name, gap, overlap)
    except ScheduleError:
        assume(False)
    turn = datetime.fromtimestamp(jump.at, UTC)
    low, high = turn - AROUND, turn + AROUND
    real = truth(expression, ZoneInfo(zone_name), gap, overlap, low - MARGIN, high + MARGIN)
    inside = [at for at in real.occurrences if low < at <= high]

    walked, at = [], low
    while (found := compiled.next(at)) is not None and found.at <= high:
        assert found.at > at
        walked.append(found.at)
        at = found.at
    assert walked == inside

    # From anywhere, not only from an occurrence; and the counts agree with the walk.
    a, b, *others = (turn + timedelta(seconds=n) for n in seconds)
    a, b = min(a, b), max(a, b)
    for point in (a, b, *others):
        expected = next((at for at in inside if at > point), None)
        found = compiled.next(point)
        if expected is not None:
            assert found is not None
            assert found.at == expected
    assert compiled.count(a, b) == sum(a < at <= b for at in inside)
    assert [g for g in compiled.gaps(a, b) if g[0] <= b] == [g for g in real.swallowed if a < g[0] <= b]
    if (known := next((at for at in inside if a < at <= b), None)) is not None:
        assert compiled.latest(known, b) == max(at for at in inside if at <= b)


@given(
    expression=expression_near(datetime(2028, 2, 29, 12, 30)),
    start=st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1)),
)
@settings(max_examples=300, deadline=None)
def test_naive_walk_agrees_with_croniter(expression: Expression, start: datetime) -> None:
    """croniter without a zone, on a canonical expression: sorted numbers, `*` where all match."""
    try:
        cron = parse_cron(expression.text)
    except ScheduleError:
        assume(False)
    other = croniter(canonical(cron), start, datetime, day_or=cron.either, max_years_between_matches=100)
    at = start
    for _ in range(5):
        following = cron.next_wall(at)
        assert following == other.get_next(datetime, start_time=at)
        at = following


def canonical(cron: Cron) -> str:
    days, weekdays = set(cron.days), set(cron.weekdays)
    if cron.either and (len(days) == 31 or len(weekdays) == 7):
        days, weekdays = set(range(1, 32)), set(range(7))  # croniter would AND a `*`
    fields = [(cron.minutes, 60), (cron.hours, 24), (days, 31), (cron.months, 12), (weekdays, 7)]
    return " ".join("*" if len(v) == full else ",".join(map(str, sorted(v))) for v, full in fields)


@given(
    expression=expression_near(datetime(2028, 2, 29, 12, 30)),
    start=st.datetimes(datetime(2024, 1, 1), datetime(2029, 1, 1)),
    days=st.integers(0, 40),
    seconds=st.integers(0, 86400),
)
@settings(max_examples=200, deadline=None)
def test_counting_walls_is_walking_them(
    expression: Expression, start: datetime, days: int, seconds: int
) -> None:
    try:
        cron = parse_cron(expression.text)
    except ScheduleError:
        assume(False)
    stop = start + timedelta(days=days, seconds=seconds)
    walked, at = 0, start - timedelta(microseconds=1)
    while (following := cron.next_wall(at)) is not None and following < stop:
        walked, at = walked + 1, following
    assert cron.count_walls(start, stop) == walked


def test_the_shortest_period_is_what_walking_finds() -> None:
    for text, seconds in {
        "* * * * *": 60,
        "*/7 * * * *": 4 * 60,  # :56 and the next :00
        "0 * * * *": 3600,
        "0,50 3 * * *": 3000,
        "50 23,0 * * *": 3600,  # 23:50 and 00:50
        "0 12 * * *": 86_400,
        "0 12 * * mon": 7 * 86_400,
        "0 12 * * mon,tue": 86_400,
        "0 0 31 * *": 31 * 86_400,
        "0 0 1 1 *": 365 * 86_400,
        "0 0 13 * fri": 86_400,  # either: a 13th beside a Friday
        "0 1,23 * * *": 2 * 3600,
        "0 1,23 1 * *": 22 * 3600,
        "0 0 29 2 *": 366 * 86_400,  # four years, but nobody has such a window
    }.items():
        assert parse_cron(text).period_seconds == seconds, text


@pytest.mark.parametrize("overlap", Overlap)
@pytest.mark.parametrize("gap", Gap)
@pytest.mark.parametrize("day", [datetime(2024, 11, 3, 4, tzinfo=UTC), datetime(2024, 3, 10, 5, tzinfo=UTC)])
def test_counting_between_any_two_quarters_of_an_hour(gap: Gap, overlap: Overlap, day: datetime) -> None:
    """New York: the pass that does not run must not count, wherever the interval begins or ends."""
    everything = {"days": range(1, 32), "months": range(1, 13), "weekdays": range(7)}
    expression = Expression(
        "30 1-3 * * *",
        minutes=frozenset({30}),
        hours=frozenset({1, 2, 3}),
        **{name: frozenset(values) for name, values in everything.items()},
    )
    zone_name = "America/New_York"
    compiled = compiled_of(expression, zone_name, gap, overlap)
    real = truth(expression, ZoneInfo(zone_name), gap, overlap, day - MARGIN, day + MARGIN).occurrences
    quarters = [day + timedelta(minutes=15 * n) for n in range(20)]
    for a, b in itertools.combinations(quarters, 2):
        assert compiled.count(a, b) == sum(a < at <= b for at in real), (a, b)
