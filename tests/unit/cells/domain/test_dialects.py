"""Quartz and EventBridge: what their texts mean, and what is said about the rest."""

# ruff: noqa: DTZ001 - wall times are naive
from __future__ import annotations

import calendar
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cells.domain.cron import parse_cron
from cells.domain.dialects import eventbridge_at, eventbridge_rate, parse_eventbridge, parse_quartz
from cells.domain.faults import ScheduleError
from cells.domain.job import Dialect, Dst, Gap, Overlap, Schedule, ScheduleType
from cells.domain.schedule import compile_schedule, normalise
from cells.domain.walker import Cron

Q, E = parse_quartz, parse_eventbridge


def told(parse: Callable[[str], Cron], text: str) -> str:
    with pytest.raises(ScheduleError) as refused:
        parse(text)
    assert {pointer for pointer, _ in refused.value.faults} == {"/schedule/cron"}
    return " | ".join(detail for _, detail in refused.value.faults)


@pytest.mark.parametrize(
    ("text", "walls"),
    [
        ("0 0 12 * * ?", ["2026-01-01 12:00:00", "2026-01-02 12:00:00"]),
        ("15/20 30 9 ? * MON-FRI", ["2026-01-01 09:30:15", "2026-01-01 09:30:35", "2026-01-01 09:30:55"]),
        ("0 0 0 L * ?", ["2026-01-31 00:00:00", "2026-02-28 00:00:00"]),
        ("0 0 0 L-3 * ?", ["2026-01-28 00:00:00", "2026-02-25 00:00:00"]),
        ("0 0 0 LW * ?", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 0 1W * ?", ["2026-02-02 00:00:00", "2026-03-02 00:00:00", "2026-04-01 00:00:00"]),
        ("0 0 0 31W * ?", ["2026-01-30 00:00:00", "2026-03-31 00:00:00"]),
        ("0 0 0 ? * 6L", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 0 ? * FRIL", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 0 ? * L", ["2026-01-03 00:00:00", "2026-01-10 00:00:00"]),
        ("0 0 0 ? * 6#3", ["2026-01-16 00:00:00", "2026-02-20 00:00:00"]),
        ("0 0 0 ? * 2#5", ["2026-03-30 00:00:00", "2026-06-29 00:00:00"]),
        ("0 0 0 ? * 7-2", ["2026-01-03 00:00:00", "2026-01-04 00:00:00", "2026-01-05 00:00:00"]),
        ("0 0 22-1 ? 1 1 2027", ["2027-01-03 00:00:00", "2027-01-03 01:00:00", "2027-01-03 22:00:00"]),
        ("0 0 0 29 2 ? 2028-2040/4", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
    ],
)
def test_quartz(text: str, walls: list[str]) -> None:
    at = datetime(2026, 1, 1)
    for wall in walls:
        found = Q(text).next_wall(at)
        assert found is not None
        assert str(found) == wall
        at = found


@pytest.mark.parametrize(
    ("text", "walls"),
    [
        ("cron(0 10 * * ? *)", ["2026-01-01 10:00:00", "2026-01-02 10:00:00"]),
        ("0/15 8 ? * 2-6 *", ["2026-01-01 08:00:00", "2026-01-01 08:15:00"]),
        ("15 10 ? * 6L 2026-2027", ["2026-01-30 10:15:00", "2026-02-27 10:15:00"]),
        ("0 9 3W * ? *", ["2026-01-02 09:00:00", "2026-02-03 09:00:00"]),
        ("0 9 ? * 3#2 *", ["2026-01-13 09:00:00", "2026-02-10 09:00:00"]),
    ],
)
def test_eventbridge(text: str, walls: list[str]) -> None:
    at = datetime(2026, 1, 1)
    for wall in walls:
        found = E(text).next_wall(at)
        assert found is not None
        assert str(found) == wall
        at = found


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("0 8 * * *", "5 fields: this looks like UNIX"),
        ("@daily", "aliases such as @daily are UNIX"),
        ("cron(0 10 * * ? *)", "this is EventBridge syntax"),
        ("0 0 12 * * *", "exactly one of the two must be `?` in the QUARTZ dialect; this looks like Spring"),
        ("0 0 12 1 * MON", "exactly one of the two must be `?`"),
        ("0 0 12 ? * ?", "`?` may stand in one of the two only"),
        ("0 0 12 ? * 0", "day-of-week: 0 is out of range (1-7): in this dialect 1 is Sunday"),
        ("0 0 12 ? * 8", "day-of-week: 8 is out of range (1-7)"),
        ("60 0 12 * * ?", "second: 60 is out of range (0-59)"),
        ("? 0 12 * * ?", "second: `?` may stand in day-of-month or day-of-week only"),
        ("0 0 12 * * ? 1969", "year: 1969 is out of range (1970-2099)"),
        ("0 0 12 15,LW * ?", "day-of-month: `15,lw`: `?`, L, W and # stand alone in their field"),
        ("0 0 12 L-31 * ?", "day-of-month: L-31 lies before every month's first day"),
        ("0 0 12 ? * 2#6", "day-of-week: #6: a month has one to five of a weekday"),
        ("0 0 12 ? * 15W", "day-of-week: `W` (nearest weekday) belongs into day-of-month"),
        ("0 0 12 2#1 * ?", "day-of-month: `#` (the n-th weekday of a month) belongs into day-of-week"),
        ("0 H 12 * * ?", "minute: `H` (hashed) is Jenkins syntax"),
        ("0 0 0 30 2 ?", "it can never fire"),
        ("0 0 0 29 2 ? 2027", "it can never fire"),
        ("0 0 12 * * ? 2026 x", "8 fields; the QUARTZ dialect has second minute hour"),
    ],
)
def test_quartz_says_what_is_wrong(text: str, part: str) -> None:
    assert part in told(Q, text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("0 8 * * *", "5 fields: this looks like UNIX"),
        ("0 0 8 * * ? 2026", "7 fields: this looks like QUARTZ"),
        ("0 8 L-2 * ? *", "day-of-month: `L-n` (days before the last) is QUARTZ syntax"),
        ("0 8 LW * ? *", "day-of-month: `LW` (the last Monday to Friday) is QUARTZ syntax"),
        ("0 22-2 * * ? *", "hour: `22-2` runs backwards"),
        ("0 8 ? * 3#1,6#3 *", "day-of-week: only one `#` may be used"),
        ("0 8 ? * fri-mon *", "day-of-week: `fri-mon` runs backwards"),
        ("cron(0 8 * * ? *", "is not understood; the EVENTBRIDGE dialect has minute hour"),
        ("0 8 * * * *", "exactly one of the two must be `?` in the EVENTBRIDGE dialect"),
    ],
)
def test_eventbridge_says_what_is_wrong(text: str, part: str) -> None:
    assert part in told(E, text)


def test_every_fault_at_once() -> None:
    text = told(Q, "60 0 25 ? 13 9")
    assert [part.split(":")[0] for part in text.split(" | ")] == ["second", "hour", "month", "day-of-week"]


def test_unix_points_to_the_dialect() -> None:
    assert "say so with `dialect` QUARTZ" in told(parse_cron, "0 0 12 * * ? 2026")
    assert "say so with `dialect` EVENTBRIDGE" in told(parse_cron, "0 10 * * ? *")
    assert "say so with `dialect` EVENTBRIDGE" in told(parse_cron, "cron(0 10 * * ? *)")


def test_rates_and_moments() -> None:
    assert eventbridge_rate("rate(5 minutes)") == 300
    assert eventbridge_rate(" RATE( 1 hour ) ") == 3600
    assert eventbridge_rate("rate(7 days)") == 604_800
    assert eventbridge_rate("0 10 * * ? *") is None
    assert eventbridge_at("at(2026-09-28T09:00:00)") == "2026-09-28T09:00:00"
    assert eventbridge_at("rate(1 day)") is None
    for text, part in [
        ("rate(1 minutes)", "EventBridge writes rate(1 minute)"),
        ("rate(5 minute)", "EventBridge writes rate(5 minutes)"),
        ("rate(0 days)", "is not understood"),
        ("rate(5 weeks)", "is not understood"),
    ]:
        with pytest.raises(ScheduleError, match=part.replace("(", r"\(").replace(")", r"\)")):
            eventbridge_rate(text)
    with pytest.raises(ScheduleError, match="is not understood"):
        eventbridge_at("at(tomorrow)")


def test_seconds_across_a_gap() -> None:
    """Every 20 seconds of two hours in New York: what the gap swallowed is one run at its end, which
    is a regular one here."""
    schedule = Schedule(
        type=ScheduleType.CRON,
        cron="*/20 59 1,2 * * ?",
        dialect=Dialect.QUARTZ,
        time_zone="America/New_York",
    )
    compiled = compile_schedule(schedule)
    at, found = datetime(2026, 3, 8, 6, 59, 19, tzinfo=UTC), []
    for _ in range(4):
        occurrence = compiled.next(at)
        assert occurrence is not None
        at = occurrence.at
        found.append(f"{at:%H:%M:%S}")
    assert found == ["06:59:20", "06:59:40", "07:00:00", "05:59:00"]
    assert compiled.period_seconds() == 20


def test_years_that_are_over() -> None:
    schedule = Schedule(
        type=ScheduleType.CRON, cron="0 0 12 1 1 ? 2020", dialect=Dialect.QUARTZ, time_zone="UTC"
    )
    with pytest.raises(ScheduleError, match="its years are over"):
        normalise(schedule, datetime(2026, 1, 1, tzinfo=UTC))


# --- against brute force --------------------------------------------------------------------
def month_days(day: date) -> list[date]:
    length = calendar.monthrange(day.year, day.month)[1]
    return [date(day.year, day.month, n) for n in range(1, length + 1)]


def nearest_weekday(wanted: date) -> date:
    """Of the month's Mondays to Fridays the closest; the month is never left."""
    working = [d for d in month_days(wanted) if d.weekday() < 5]
    return min(working, key=lambda d: (abs((d - wanted).days), d < wanted))


Rule = tuple[str, str, Callable[[date], bool]]  # day-of-month, day-of-week, what it means


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    n, weekday = draw(st.integers(1, 31)), draw(st.integers(1, 7))
    names = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
    shown = draw(st.sampled_from([str(weekday), names[weekday - 1]]))

    def is_weekday(d: date) -> bool:
        return d.isoweekday() % 7 == weekday - 1

    kind = draw(st.sampled_from(["day", "last", "before", "last weekday", "near", "of week", "nth", "final"]))
    if kind == "day":
        return str(n), "?", lambda d: d.day == n
    if kind == "last":
        return "L", "?", lambda d: d == month_days(d)[-1]
    if kind == "before":
        before = draw(st.integers(0, 30))
        return f"L-{before}", "?", lambda d: month_days(d)[::-1].index(d) == before
    if kind == "last weekday":
        return "LW", "?", lambda d: d == [x for x in month_days(d) if x.weekday() < 5][-1]
    if kind == "near":
        return f"{n}W", "?", lambda d: len(month_days(d)) >= n and d == nearest_weekday(d.replace(day=n))
    if kind == "of week":
        return "?", shown, is_weekday
    if kind == "nth":
        nth = draw(st.integers(1, 5))
        return "?", f"{shown}#{nth}", lambda d: is_weekday(d) and (d.day - 1) // 7 + 1 == nth
    return "?", f"{shown}L", lambda d: is_weekday(d) and (d + timedelta(days=7)).month != d.month


@given(
    rule=rules(),
    start=st.dates(date(1996, 1, 1), date(2105, 1, 1)),
    months=st.sets(st.integers(1, 12), min_size=3, max_size=6),
)
@settings(max_examples=300, deadline=None)
def test_days_against_brute_force(rule: Rule, start: date, months: set[int]) -> None:
    of_month, of_week, means = rule
    in_months = ",".join(map(str, sorted(months)))
    try:
        cron = Q(f"0 0 0 {of_month} {in_months} {of_week}")
    except ScheduleError:
        assert not any(means(d) for m in months for y in range(2000, 2028) for d in month_days(date(y, m, 1)))
        return
    stop = start + timedelta(days=900)
    expected = [
        d for d in (start + timedelta(days=n) for n in range(1, 901)) if d.month in months and means(d)
    ]
    found, at = [], start
    while (following := cron.next_day(at)) is not None and following <= stop:
        found.append(following)
        at = following
    assert found == expected
    low, high = datetime.combine(start, datetime.min.time()), datetime.combine(stop, datetime.min.time())
    assert cron.count_walls(low + timedelta(seconds=1), high + timedelta(seconds=1)) == len(expected)


JUMPS = [
    ("America/New_York", datetime(2026, 3, 8, 7)),
    ("America/New_York", datetime(2026, 11, 1, 6)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30)),
]


@given(
    seconds=st.sets(st.integers(0, 59), min_size=1, max_size=4),
    minutes=st.sets(st.integers(0, 59), min_size=1, max_size=3),
    hours=st.sets(st.integers(0, 4), min_size=1, max_size=3),
    jump=st.sampled_from(JUMPS),
    gap=st.sampled_from(Gap),
    overlap=st.sampled_from(Overlap),
    frequent=st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_seconds_against_brute_force(
    seconds: set[int],
    minutes: set[int],
    hours: set[int],
    jump: tuple[str, datetime],
    gap: Gap,
    overlap: Overlap,
    frequent: bool,
) -> None:
    """Every real second around a transition, read off the zone's clock; `fold` is never used."""
    name, turn = jump[0], jump[1].replace(tzinfo=UTC)
    hour_text = "*" if frequent else ",".join(map(str, sorted(hours)))
    text = f"{','.join(map(str, seconds))} {','.join(map(str, minutes))} {hour_text} * * ?"
    compiled = compile_schedule(
        Schedule(
            type=ScheduleType.CRON,
            cron=text,
            dialect=Dialect.QUARTZ,
            time_zone=name,
            dst=Dst(gap=gap, overlap=overlap),
        )
    )

    def fires(wall: datetime) -> bool:
        in_hours = frequent or wall.hour in hours
        return in_hours and wall.minute in minutes and wall.second in seconds

    tz, low = ZoneInfo(name), turn - timedelta(hours=3)
    clock = [low + timedelta(seconds=n) for n in range(6 * 3600)]
    walls = [at.astimezone(tz).replace(tzinfo=None, fold=0) for at in clock]
    readings: dict[datetime, list[datetime]] = {}
    for at, wall in zip(clock, walls, strict=True):
        if fires(wall):
            readings.setdefault(wall, []).append(at)
    truth: set[datetime] = set()
    for instants in readings.values():
        chosen = {Overlap.FIRST: instants[:1], Overlap.SECOND: instants[-1:], Overlap.BOTH: instants}
        truth.update(instants if frequent else chosen[overlap])
    swallowed = 0
    for before, after, at in zip(walls, walls[1:], clock[1:], strict=False):
        jumped = int((after - before).total_seconds())
        missing = sum(fires(before + timedelta(seconds=n)) for n in range(1, max(1, jumped)))
        if missing and not frequent:
            swallowed += missing
            if gap is Gap.SHIFT:
                truth.add(at)
    inside = sorted(at for at in truth if turn - timedelta(hours=2) < at <= turn + timedelta(hours=2))
    found, at = [], turn - timedelta(hours=2)
    while (following := compiled.next(at)) is not None and following.at <= turn + timedelta(hours=2):
        assert following.at > at
        found.append(following.at)
        at = following.at
    assert found == inside
    assert compiled.count(turn - timedelta(hours=2), turn + timedelta(hours=2)) == len(inside)
    gaps = compiled.gaps(low, low + timedelta(hours=6))
    assert sum(n for _, n in gaps) == (swallowed if gap is Gap.SKIP and not frequent else 0)
