"""Excluded dates: what runs, what moves, what is accounted for; compared with brute force."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cells.domain.calendars import Calendar, Roll, make_calendar, read_dates
from cells.domain.claiming import Skip, plan_claim
from cells.domain.faults import ScheduleError
from cells.domain.job import JobDefinition, Schedule, ScheduleType, TargetRef
from cells.domain.schedule import compile_schedule, normalise, preview

CHRISTMAS = make_calendar([date(2026, 12, 25), date(2026, 12, 26)], [0, 6])


def scheduled(cron: str, calendar: Calendar, roll: Roll, zone: str = "Europe/Berlin") -> Schedule:
    return Schedule(
        type=ScheduleType.CRON, cron=cron, time_zone=zone, calendar="cal_x", calendar_version=1,
        roll=roll, excluded=calendar,
    )  # fmt: skip


def days(schedule: Schedule, start: date, count: int) -> list[str]:
    after = datetime(start.year, start.month, start.day, tzinfo=UTC)
    return [item.local[:10] for item in preview(schedule, after, count)]


def test_what_becomes_of_an_excluded_day() -> None:
    # 25 December 2026 is a Friday.
    friday = "0 9 * * 5"
    start = date(2026, 12, 17)
    skipped = scheduled(friday, CHRISTMAS, Roll.SKIP)
    assert days(skipped, start, 3) == ["2026-12-18", "2027-01-01", "2027-01-08"]
    later = scheduled(friday, CHRISTMAS, Roll.NEXT)
    assert days(later, start, 3) == ["2026-12-18", "2026-12-28", "2027-01-01"]
    moved = scheduled(friday, CHRISTMAS, Roll.PREVIOUS)
    assert days(moved, start, 3) == ["2026-12-18", "2026-12-24", "2027-01-01"]
    notes = [item.note for item in preview(moved, datetime(2026, 12, 17, tzinfo=UTC), 2)]
    assert notes == [None, "moved here by the calendar"]


def test_what_moves_onto_a_run_is_one_run() -> None:
    daily = scheduled("0 9 * * *", CHRISTMAS, Roll.PREVIOUS)
    assert days(daily, date(2026, 12, 23), 3) == ["2026-12-23", "2026-12-24", "2026-12-28"]


def test_what_would_have_moved_to_before_now_does_not_run() -> None:
    moved = compile_schedule(scheduled("0 9 * * 5", CHRISTMAS, Roll.PREVIOUS))
    now = datetime(2026, 12, 24, 12, tzinfo=UTC)
    found = moved.first(now)
    assert found is not None
    assert found.at.date() == date(2027, 1, 1)
    assert moved.excluded(now, found.at) == (datetime(2026, 12, 25, 8, tzinfo=UTC), 1)


def test_a_claim_accounts_for_what_is_excluded() -> None:
    definition = JobDefinition(
        schedule=scheduled("0 9 * * *", CHRISTMAS, Roll.SKIP), target=TargetRef(target_id="tgt_x")
    )
    waited = datetime(2026, 12, 24, 8, tzinfo=UTC)
    plan = plan_claim(definition, waited, waited)
    skipped = Skip(datetime(2026, 12, 25, 8, tzinfo=UTC), "calendar", 3)
    assert (plan.run_at, plan.skipped, plan.next) == (
        waited,
        (skipped,),
        datetime(2026, 12, 28, 8, tzinfo=UTC),
    )


def test_never_an_open_day() -> None:
    with pytest.raises(ScheduleError, match="excludes all its days"):
        normalise(scheduled("0 9 * * 6", CHRISTMAS, Roll.SKIP), datetime(2026, 1, 1, tzinfo=UTC))


def test_an_unknown_calendar_and_roll_alone() -> None:
    base = Schedule(type=ScheduleType.CRON, cron="0 9 * * *", time_zone="UTC")
    with pytest.raises(ScheduleError) as refused:
        compile_schedule(Schedule(type=ScheduleType.CRON, cron="x", time_zone="UTC", calendar="cal_no"))
    assert [pointer for pointer, _ in refused.value.faults] == ["/schedule/cron", "/schedule/calendar"]
    rolled = Schedule(type=base.type, cron=base.cron, time_zone="UTC", roll=Roll.NEXT)
    with pytest.raises(ScheduleError, match="needs a calendar"):
        compile_schedule(rolled)
    rate = Schedule(
        type=ScheduleType.RATE, every_seconds=60, start_at="2026-01-01T00:00:00Z", calendar="cal_x"
    )
    with pytest.raises(ScheduleError, match="a RATE schedule has no calendar"):
        compile_schedule(rate)


def test_every_fault_of_a_calendar() -> None:
    _, faults = read_dates({0: "2026-02-30", 1: "2026-01-01", 2: "2026-01-01", 3: "3000-01-01", 4: "x"})
    assert [pointer for pointer, _ in faults] == ["/dates/0", "/dates/2", "/dates/3", "/dates/4"]
    with pytest.raises(ScheduleError, match="all seven days"):
        make_calendar([], range(7))
    with pytest.raises(ScheduleError, match="no open day for more than 366 days from 2026-01-01 on"):
        make_calendar([date(2026, 1, 1) + timedelta(days=n) for n in range(400)])


@given(
    day=st.sampled_from(["* * *", "* * 1-5", "* * 5", "1 * *", "15,31 * *", "*/3 * *", "28-31 * 1"]),
    excluded=st.sets(st.integers(0, 119), max_size=60),
    weekdays=st.sampled_from([(), (0, 6), (5,), (1, 2, 3, 4, 5, 6)]),
    roll=st.sampled_from(Roll),
    zone=st.sampled_from(["UTC", "America/New_York", "Pacific/Auckland"]),
    clock=st.sampled_from(["30 2", "0 0", "15,45 7,19"]),
)
@settings(max_examples=250, deadline=None)
def test_against_brute_force(
    day: str, excluded: set[int], weekdays: tuple[int, ...], roll: Roll, zone: str, clock: str
) -> None:
    """Day by day over half a year: which dates have runs under each way of moving."""
    origin = date(2026, 1, 20)
    calendar = make_calendar([origin + timedelta(days=n) for n in excluded], weekdays)
    plain = compile_schedule(Schedule(type=ScheduleType.CRON, cron=f"{clock} {day}", time_zone=zone))
    compiled = compile_schedule(scheduled(f"{clock} {day}", calendar, roll, zone))
    tz = ZoneInfo(zone)
    start = datetime(2025, 10, 1, 12, tzinfo=UTC)
    stop = datetime(2026, 10, 1, 12, tzinfo=UTC)

    def shut(d: date) -> bool:
        return (d - origin).days in excluded or d.isoweekday() % 7 in weekdays

    base: dict[date, list[datetime]] = {}
    at = start
    while (found := plain.next(at)) is not None and found.at <= stop:
        at = found.at
        base.setdefault(at.astimezone(tz).date(), []).append(at)
    allowed = set()
    for d in base:
        while shut(d) and roll is not Roll.SKIP:
            d += timedelta(days=1 if roll is Roll.NEXT else -1)
        if not shut(d):
            allowed.add(d)
    low, high = datetime(2025, 12, 1, tzinfo=UTC), datetime(2026, 8, 1, tzinfo=UTC)
    walked, at = [], low
    while (found := compiled.next(at)) is not None and found.at <= high:
        assert found.at > at
        at = found.at
        walked.append(at)
    inside = {d for d in allowed if low.astimezone(tz).date() < d < high.astimezone(tz).date()}
    edge = {low.astimezone(tz).date(), high.astimezone(tz).date()}
    assert {at.astimezone(tz).date() for at in walked} - edge == inside - edge
    assert compiled.count(low, high) == len(walked)
    # Every excluded occurrence is in the account, and nothing else is.
    lost = [at for d, ats in base.items() if shut(d) for at in ats if low < at <= high]
    account = compiled.excluded(low, high)
    assert (account[1] if account else 0) == len(lost)
    if lost:
        assert account is not None
        assert account[0] == min(lost)
