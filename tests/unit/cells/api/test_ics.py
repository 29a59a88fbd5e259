"""iCalendar files: their whole days, and faults instead of crashes."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from cells.api.ics import MAX_STEPS, read_ics

NOW = datetime(2026, 9, 28, tzinfo=UTC)


def event(*lines: str) -> str:
    return "\r\n".join(("BEGIN:VEVENT", *lines, "END:VEVENT"))


def read(*events: str) -> tuple[dict[date, str | None], list[str]]:
    text = "\r\n".join(("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", *events, "END:VCALENDAR", ""))
    days, faults = read_ics(text, NOW)
    return days, [detail for _, detail in faults]


def test_days_and_recurrences() -> None:
    days, faults = read(
        event("SUMMARY:New Year", "DTSTART;VALUE=DATE:19000101", "RRULE:FREQ=YEARLY"),
        event("DTSTART;VALUE=DATE:20261224", "DTEND;VALUE=DATE:20261227"),
        event("DTSTART;VALUE=DATE:20261126", "RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH;UNTIL=20271231"),
        event("DTSTART;VALUE=DATE:20270301", "RRULE:FREQ=DAILY;COUNT=3", "EXDATE;VALUE=DATE:20270302"),
        event("DTSTART;VALUE=DATE:20270501", "RDATE;VALUE=DATE:20270601"),
    )
    assert faults == []
    assert [day.year for day, name in days.items() if name == "New Year"] == list(range(2025, 2042))
    assert [day.isoformat() for day, name in days.items() if name is None] == [
        "2026-12-24", "2026-12-25", "2026-12-26", "2026-11-26", "2027-11-25", "2027-03-01", "2027-03-03",
        "2027-05-01", "2027-06-01",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("DTSTART;VALUE=DATE:20200101", "RRULE:FREQ=YEARLY;INTERVAL=0"), "INTERVAL"),
        (("DTSTART;VALUE=DATE:20200101", "RRULE:FREQ=YEARLY;COUNT=0"), "COUNT"),
        (("DTSTART;VALUE=DATE:20200101", "RRULE:FREQ=HOURLY"), "within a day"),
        (("DTSTART;VALUE=DATE:20200101", "RRULE:FREQ=DAILY;BYHOUR=7"), "within a day"),
        (("DTSTART;VALUE=DATE:00010101", "RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=3"), "steps"),
        (("DTSTART;VALUE=DATE:99991231", "DURATION:P3D"), "event 1"),
        (("DTSTART;VALUE=DATE:20260101", "DURATION:P3D", "RDATE;VALUE=DATE:99991231"), "event 1"),
        (("DTSTART;VALUE=DATE:20260101", "DTSTART;VALUE=DATE:20260102"), "several DTSTART"),
        (("DTSTART;VALUE=DATE:20260101", "DTEND;VALUE=DATE:20260102", "DTEND;VALUE=DATE:20260103"), "DTEND"),
        (("DTSTART;VALUE=DATE:20260101", "RDATE;VALUE=PERIOD:20260101T000000Z/PT1H"), "event 1"),
        (("SUMMARY:none",), "no DTSTART"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_a_fault(lines: tuple[str, ...], said: str) -> None:
    _, faults = read(event(*lines))
    assert len(faults) == 1
    assert said in faults[0]


def test_a_file_is_bounded_as_a_whole() -> None:
    daily = event(
        "DTSTART;VALUE=DATE:00010101", "DURATION:P366D", "RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=1,2,3"
    )
    _, faults = read(*[daily] * 100)
    assert len(faults) == 1
    assert f"more than {MAX_STEPS} steps" in faults[0]
