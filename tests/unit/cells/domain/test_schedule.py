"""Schedules of every type: checking, first and next occurrences, ends, previews."""

# ruff: noqa: DTZ001 - wall times are naive
from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cells.domain.job import Dst, Gap, Overlap, Schedule, ScheduleType
from cells.domain.schedule import (
    MAX_EVERY_SECONDS,
    Occurrence,
    ScheduleError,
    compile_schedule,
    normalise,
    preview,
)
from cells.domain.zones import LATEST, NAMES

NOW = datetime(2026, 9, 28, 9, 0, 0, 250_000, tzinfo=UTC)
SECOND = timedelta(seconds=1)
NEW_YEAR, NEXT_YEAR = "2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def once(run_at: str, zone: str | None = None, **dst: object) -> Schedule:
    return Schedule(type=ScheduleType.ONCE, run_at=run_at, time_zone=zone, dst=Dst(**dst))


def cron(text: str, zone: str | None = "UTC", **more: object) -> Schedule:
    return Schedule(type=ScheduleType.CRON, cron=text, time_zone=zone, **more)


def rate(every: int, start: str | None = None, **more: object) -> Schedule:
    return Schedule(type=ScheduleType.RATE, every_seconds=every, start_at=start, **more)


def faults(schedule: Schedule, now: datetime = NOW) -> list[tuple[str, str]]:
    with pytest.raises(ScheduleError) as refused:
        normalise(schedule, now)
    return refused.value.faults


# --- ONCE --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("run_at", "zone", "instant"),
    [
        ("2026-09-28T09:00:00", "Europe/Berlin", "2026-09-28T07:00:00+00:00"),
        ("2026-09-28T09:00", "Europe/Berlin", "2026-09-28T07:00:00+00:00"),
        ("2026-09-28 09:00:07", "Europe/Berlin", "2026-09-28T07:00:07+00:00"),
        ("2026-09-28T09:00:00Z", None, "2026-09-28T09:00:00+00:00"),
        ("2026-09-28t09:00:00z", "Europe/Berlin", "2026-09-28T09:00:00+00:00"),
        ("2026-09-28T09:00:00.000+05:30", None, "2026-09-28T03:30:00+00:00"),
        ("2026-09-28T09:00:00-11:00", "UTC", "2026-09-28T20:00:00+00:00"),
        ("1999-01-01T00:00:00Z", None, "1999-01-01T00:00:00+00:00"),  # past: its misfire policy decides
        ("9998-12-31T23:59:59", "Pacific/Pago_Pago", "9999-01-01T10:59:59+00:00"),
    ],
)
def test_once(run_at: str, zone: str | None, instant: str) -> None:
    schedule = normalise(once(run_at, zone), NOW)
    compiled = compile_schedule(schedule)
    assert compiled.first(NOW) == Occurrence(at(instant))
    assert compiled.next(at(instant) - SECOND) == Occurrence(at(instant))
    assert compiled.next(at(instant)) is None
    assert compiled.period_seconds() is None


def test_once_in_an_overlap_may_run_twice() -> None:
    compiled = compile_schedule(once("2024-11-03T01:30", "America/New_York", overlap=Overlap.BOTH))
    first, second = at("2024-11-03T05:30:00+00:00"), at("2024-11-03T06:30:00+00:00")
    assert compiled.first(NOW) == Occurrence(first, "first pass of an overlap")
    assert compiled.next(first) == Occurrence(second, "second pass of an overlap")
    assert compiled.next(second) is None
    assert compiled.period_seconds() == 3600
    assert compiled.count(first - SECOND, second) == 2


def test_once_in_a_gap_that_is_skipped_is_refused() -> None:
    said = (
        "2024-03-10T02:30:00 does not exist in America/New_York (the clock jumps over it),"
        " and dst.gap is SKIP: it would never run"
    )
    refused = faults(once("2024-03-10T02:30:00", "America/New_York", gap=Gap.SKIP))
    assert refused == [("/schedule/run_at", said)]


@pytest.mark.parametrize(
    ("run_at", "words"),
    [
        ("tomorrow", "is not a time like"),
        ("2026-02-30T09:00:00Z", "does not exist"),
        ("2026-09-28T24:00:00Z", "does not exist"),
        ("2026-09-28T09:00:60Z", "does not exist"),
        ("2026-09-28T09:00:00.5Z", "only whole seconds"),
        ("2026-09-28T09:00:00+24:00", "is not an offset"),
        ("2026-09-28T09:00:00+02:60", "is not an offset"),
        ("2026-09-28", "is not a time like"),
        ("20260928T090000Z", "is not a time like"),
        ("٢٠٢٦-09-28T09:00:00Z", "is not a time like"),
        ("2026-09-28T09:00:00Z\n", "is not a time like"),
        ("0001-01-01T00:00:00Z", "the year must lie between 1901 and 9998"),
        ("0000-01-01T00:00:00Z", "does not exist"),
        ("9999-12-31T23:59:59Z", "the year must lie between 1901 and 9998"),
        ("9" * 5000, "is not a time like"),
        ("", "is not a time like"),
    ],
)
def test_run_at_that_is_no_time(run_at: str, words: str) -> None:
    ((pointer, detail),) = faults(once(run_at, "UTC"))
    assert pointer == "/schedule/run_at"
    assert words in detail
    assert len(detail) < 250


# --- RATE --------------------------------------------------------------------------------
def test_rate_is_anchored_when_it_is_made() -> None:
    schedule = normalise(rate(90), NOW)
    assert schedule.start_at == "2026-09-28T09:00:00Z"
    compiled = compile_schedule(schedule)
    assert compiled.first(NOW) == Occurrence(at("2026-09-28T09:01:30+00:00"))
    assert compiled.period_seconds() == 90


def test_rate_includes_a_start_that_lies_ahead() -> None:
    compiled = compile_schedule(normalise(rate(3600, "2026-10-01T12:34:56+02:00"), NOW))
    assert compiled.first(NOW) == Occurrence(at("2026-10-01T10:34:56+00:00"))
    assert compiled.next(at("2026-10-01T10:34:56+00:00")) == Occurrence(at("2026-10-01T11:34:56+00:00"))


def test_rate_keeps_its_grid_from_a_start_that_is_past() -> None:
    compiled = compile_schedule(normalise(rate(7, "2020-01-01T00:00:00Z"), NOW))
    found = compiled.first(NOW)
    assert found is not None
    assert (found.at - at("2020-01-01T00:00:00+00:00")) % timedelta(seconds=7) == timedelta(0)
    assert timedelta(0) < found.at - NOW <= timedelta(seconds=7)


def test_rate_knows_no_wall_clock() -> None:
    """Every 24 h through a 23-hour day."""
    compiled = compile_schedule(rate(86_400, "2026-03-28T02:30:00+01:00"))
    assert compiled.next(at("2026-03-28T01:30:00+00:00")) == Occurrence(at("2026-03-29T01:30:00+00:00"))


@given(
    every=st.integers(1, MAX_EVERY_SECONDS),
    start=st.datetimes(datetime(1901, 1, 1), datetime(9998, 12, 31)),
    now=st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
)
def test_rate_next_is_the_first_after(every: int, start: datetime, now: datetime) -> None:
    anchor, now = start.replace(microsecond=0, tzinfo=UTC), now.replace(tzinfo=UTC)
    compiled = compile_schedule(rate(every, anchor.strftime("%Y-%m-%dT%H:%M:%SZ")))
    steps = 0 if now < anchor else (now - anchor) // SECOND // every + 1
    expected = datetime.fromtimestamp(
        min(int(anchor.timestamp()) + steps * every, int(LATEST.timestamp())), UTC
    )
    found = compiled.next(now)
    assert found == (Occurrence(expected) if expected < LATEST else None)


# --- bounds ------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["cron", "rate"])
def test_start_is_included_and_end_is_not(kind: str) -> None:
    bounds = {"start_at": "2026-10-01T00:00:00Z", "end_at": "2026-10-01T00:03:00Z"}
    schedule = (
        cron("* * * * *", **bounds)
        if kind == "cron"
        else rate(60, bounds["start_at"], end_at=bounds["end_at"])
    )
    found = preview(normalise(schedule, NOW), NOW, 10)
    assert [p.at.minute for p in found] == [0, 1, 2]
    compiled = compile_schedule(schedule)
    assert compiled.next(at("2026-10-01T00:02:00+00:00")) is None
    assert compiled.next(LATEST) is None
    assert compiled.count(NOW, LATEST) == 3
    assert compiled.count(LATEST, NOW) == 0
    assert compiled.latest(found[0].at, LATEST) == found[-1].at


def test_an_end_in_the_year_9999_is_never() -> None:
    compiled = compile_schedule(cron("0 0 * * *", end_at="9999-12-31T23:59:59.999Z"))
    assert compiled.next(at("9998-12-30T00:00:00+00:00")) == Occurrence(at("9998-12-31T00:00:00+00:00"))
    assert compiled.next(at("9998-12-31T00:00:00+00:00")) is None
    assert compiled.next(datetime.max.replace(tzinfo=UTC)) is None


def test_any_instant_may_be_asked() -> None:
    for zone in ("UTC", "America/New_York", "Pacific/Kiritimati"):
        compiled = compile_schedule(cron("0 0 * * *", zone))
        first = compiled.next(datetime.min.replace(tzinfo=UTC))
        assert first is not None
        assert first.at.year == 1900 or first.at == at("1899-12-31T10:40:40+00:00")
        assert compiled.next(datetime.max.replace(tzinfo=UTC)) is None


def test_instants_need_not_be_in_utc() -> None:
    berlin = timezone(timedelta(hours=2))
    compiled = compile_schedule(cron("30 2 * * *", "Europe/Berlin", dst=Dst(overlap=Overlap.BOTH)))
    # Both name the first 02:30 of 25 October.
    a = compiled.next(at("2026-10-25T00:30:00+00:00"))
    b = compiled.next(at("2026-10-25T02:30:00+02:00").astimezone(berlin))
    assert a == b == Occurrence(at("2026-10-25T01:30:00+00:00"), "second pass of an overlap")
    assert compiled.count(at("2026-10-25T02:00:00+02:00"), at("2026-10-25T03:00:00+01:00")) == 2


@pytest.mark.parametrize(
    ("schedule", "pointer"),
    [
        (cron("0 0 * * *", end_at="2026-09-28T09:00:00Z"), "/schedule/end_at"),
        (
            cron("0 0 * * *", start_at=NEW_YEAR, end_at=NEW_YEAR),
            "/schedule/end_at",
        ),
        (
            cron("0 0 2 1 *", start_at="2027-01-03T00:00:00Z", end_at=NEXT_YEAR),
            "/schedule/end_at",
        ),
        (rate(86_400, end_at="2026-09-28T10:00:00Z"), "/schedule/end_at"),
        (cron("0 0 * * *", start_at="2027-01-01T00:00:00"), "/schedule/start_at"),
        (rate(60, "2027-01-01"), "/schedule/start_at"),
        (cron("0 0 * * *", end_at="9999-99-99"), "/schedule/end_at"),
        (Schedule(type=ScheduleType.CRON), "/schedule/cron"),
        (Schedule(type=ScheduleType.ONCE), "/schedule/run_at"),
        (Schedule(type=ScheduleType.RATE), "/schedule/every_seconds"),
        (rate(0), "/schedule/every_seconds"),
        (rate(-5), "/schedule/every_seconds"),
        (rate(10**400), "/schedule/every_seconds"),
        (once("2026-10-01T09:00:00"), "/schedule/time_zone"),
        (cron("0 0 * * *", "Mars/Olympus"), "/schedule/time_zone"),
        (cron("30 2 8-14 3 */7", "America/New_York", dst=Dst(gap=Gap.SKIP)), "/schedule/cron"),
    ],
)
def test_refused(schedule: Schedule, pointer: str) -> None:
    assert [p for p, _ in faults(schedule)] == [pointer]


def test_all_faults_at_once() -> None:
    schedule = Schedule(
        type=ScheduleType.CRON, cron="61 * * * 9", time_zone="Nowhere", run_at="x", every_seconds=5,
        start_at="yesterday", end_at="never",
    )  # fmt: skip
    assert [p for p, _ in faults(schedule)] == [
        "/schedule/run_at", "/schedule/every_seconds", "/schedule/time_zone", "/schedule/cron",
        "/schedule/cron", "/schedule/start_at", "/schedule/end_at",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(type=ScheduleType.NOW, cron="* * * * *"),
        Schedule(type=ScheduleType.NOW, time_zone="UTC"),
        Schedule(type=ScheduleType.NOW, dst=Dst(gap=Gap.SKIP)),
        rate(60, time_zone="UTC"),
        Schedule(type=ScheduleType.ONCE, run_at=NEW_YEAR, end_at=NEXT_YEAR),
    ],
)
def test_members_of_other_types_are_refused(schedule: Schedule) -> None:
    ((_, detail),) = faults(schedule)
    assert f"a {schedule.type.value} schedule has no" in detail


def test_a_cron_without_a_zone_is_in_utc_and_says_so() -> None:
    assert normalise(cron("0 9 * * *", None), NOW).time_zone == "UTC"


def test_normalising_twice_changes_nothing() -> None:
    for schedule in (
        cron("0 9 * * *", None),
        rate(60),
        once("2027-01-01T00:00", "UTC"),
        Schedule(type=ScheduleType.NOW),
    ):
        stored = normalise(schedule, NOW)
        assert normalise(stored, NOW + timedelta(days=1)) == stored


def test_now_is_due_at_once_and_only_once() -> None:
    compiled = compile_schedule(normalise(Schedule(type=ScheduleType.NOW), NOW))
    assert compiled.first(NOW) == Occurrence(NOW.replace(microsecond=0))
    assert compiled.next(NOW) is None


# --- zones -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "zone",
    [
        "", "/etc/passwd", "../UTC", "America", "europe/berlin", "Europe/Berlin ", "UTC+2", "+02:00", "GMT-3",
        "Ünï/Cödé", "\x00", "localtime", "Factory", "a" * 10_000, "posix/UTC", "zone.tab",
    ],
)  # fmt: skip
def test_weird_zones(zone: str) -> None:
    ((pointer, detail),) = faults(cron("0 0 * * *", zone))
    assert pointer == "/schedule/time_zone"
    assert detail.isascii()
    assert len(detail) < 600


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("europe/berlin", "Europe/Berlin"),
        ("Europe/Berln", "Europe/Berlin"),
        ("America/New York", "America/New_York"),
        ("Berlin", "Europe/Berlin"),
    ],
)
def test_a_near_name_is_suggested(wrong: str, right: str) -> None:
    ((_, detail),) = faults(cron("0 0 * * *", wrong))
    assert detail.endswith(f"did you mean {right}?")


def test_only_the_pinned_zone_data_counts() -> None:
    """Vancouver stays on UTC-7 from 2026 on; older data (a host's) says 20:00Z."""
    compiled = compile_schedule(cron("0 12 15 12 *", "America/Vancouver"))
    assert compiled.next(NOW) == Occurrence(at("2026-12-15T19:00:00+00:00"))


# --- previews ----------------------------------------------------------------------------
def notes(schedule: Schedule, after: str, count: int) -> list[tuple[str, str | None]]:
    return [(p.local, p.note) for p in preview(schedule, at(after), count)]


def test_preview_says_what_daylight_saving_does() -> None:
    daily = cron("30 2 * * *", "Europe/Berlin")
    assert notes(daily, "2026-03-28T00:00:00+00:00", 3) == [
        ("2026-03-28T02:30:00+01:00", None),
        ("2026-03-29T03:00:00+02:00", "shifted out of a DST gap"),
        ("2026-03-30T02:30:00+02:00", None),
    ]
    both = cron("30 2 * * *", "Europe/Berlin", dst=Dst(overlap=Overlap.BOTH))
    assert notes(both, "2026-10-24T12:00:00+00:00", 3) == [
        ("2026-10-25T02:30:00+02:00", "first pass of an overlap"),
        ("2026-10-25T02:30:00+01:00", "second pass of an overlap"),
        ("2026-10-26T02:30:00+01:00", None),
    ]


def test_preview_of_the_other_types() -> None:
    assert notes(rate(60), "2026-09-28T09:00:00+00:00", 2) == [
        ("2026-09-28T09:01:00+00:00", None),
        ("2026-09-28T09:02:00+00:00", None),
    ]
    assert notes(Schedule(type=ScheduleType.NOW), "2026-09-28T09:00:00+00:00", 5) == [
        ("2026-09-28T09:00:00+00:00", None)
    ]
    assert notes(once("2026-10-01T09:00:00", "Asia/Kolkata"), "2026-09-28T09:00:00+00:00", 5) == [
        ("2026-10-01T09:00:00+05:30", None)
    ]
    assert notes(once("2026-10-01T09:00:00", "Asia/Kolkata"), "2027-01-01T00:00:00+00:00", 5) == []


def test_preview_is_bounded() -> None:
    assert len(preview(cron("* * * * *"), NOW, 10**9)) == 100
    assert preview(cron("* * * * *"), NOW, 0) == []
    assert preview(cron("* * * * *"), datetime.max.replace(tzinfo=UTC), 5) == []


# --- everything --------------------------------------------------------------------------
@given(
    text=st.sampled_from(
        ["* * * * *", "*/7 */5 * * *", "0 0 * * *", "30 2 * * 0", "0 12 29 2 *", "15 1,2,3 1-7 * 1"]
    ),
    zone=st.sampled_from(sorted(NAMES)),
    gap=st.sampled_from(Gap),
    overlap=st.sampled_from(Overlap),
    moments=st.lists(st.datetimes(datetime(1880, 1, 1), datetime(9999, 12, 30)), min_size=2, max_size=2),
)
@settings(max_examples=300, deadline=None)
def test_next_is_after_and_monotone_in_every_zone(
    text: str, zone: str, gap: Gap, overlap: Overlap, moments: list[datetime]
) -> None:
    compiled = compile_schedule(cron(text, zone, dst=Dst(gap=gap, overlap=overlap)))
    early, late = sorted(m.replace(tzinfo=UTC) for m in moments)
    a, b = compiled.next(early), compiled.next(late)
    for moment, found in ((early, a), (late, b)):
        if found is not None:
            assert found.at > moment
            assert found.at.microsecond == 0
            assert found.at.tzinfo is UTC
    if b is not None:
        assert a is not None
        assert a.at <= b.at
    elif a is not None:
        assert a.at < LATEST
