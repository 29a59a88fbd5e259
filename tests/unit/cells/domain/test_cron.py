"""Parsing: what is accepted, what it means, and what is said about the rest."""

# ruff: noqa: DTZ001 - wall times are naive
from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cells.domain.cron import ALIASES, parse_cron
from cells.domain.faults import ScheduleError

WEEK = set(range(7))


def faults(text: str) -> list[str]:
    with pytest.raises(ScheduleError) as refused:
        parse_cron(text)
    assert {pointer for pointer, _ in refused.value.faults} == {"/schedule/cron"}
    return [detail for _, detail in refused.value.faults]


@pytest.mark.parametrize(
    ("text", "weekdays"),
    [
        ("0", {0}), ("7", {0}), ("sun", {0}), ("SUN", {0}), ("7-7", {0}), ("0-0", {0}),
        ("0-7", WEEK), ("mon-sun", WEEK), ("sun-sat", WEEK), ("1,2,3,4,5,6,7", WEEK), ("*", WEEK),
        ("sat-sun", {6, 0}), ("fri-mon", {5, 6, 0, 1}), ("5-7", {5, 6, 0}), ("7-2", {0, 1, 2}),
        ("6-1", {6, 0, 1}), ("fri-mon/2", {5, 0}), ("*/2", {0, 2, 4, 6}), ("1/2", {1, 3, 5}),
        ("mon,wed-fri", {1, 3, 4, 5}),
    ],
)  # fmt: skip
def test_weekdays(text: str, weekdays: set[int]) -> None:
    assert parse_cron(f"0 0 * * {text}").weekdays == weekdays


@pytest.mark.parametrize(
    ("text", "months"),
    [
        ("jan", {1}), ("Nov-feb", {11, 12, 1, 2}), ("11-2/2", {11, 1}), ("dec-dec", {12}),
        ("*/3", {1, 4, 7, 10}), ("5/4", {5, 9}), ("jul,APR", {4, 7}), ("01", {1}),
    ],
)  # fmt: skip
def test_months(text: str, months: set[int]) -> None:
    assert parse_cron(f"0 0 1 {text} *").months == months


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("0", [0]), ("59", [59]), ("00", [0]), ("5/15", [5, 20, 35, 50]), ("0-59/59", [0, 59]),
        ("*/45", [0, 45]), ("1-3,2-5", [1, 2, 3, 4, 5]), ("*/60", [0]), ("7-7", [7]), ("10-20/30", [10]),
        ("*", list(range(60))),
    ],
)  # fmt: skip
def test_minutes(text: str, minutes: list[int]) -> None:
    assert parse_cron(f"{text} * * * *").minutes == minutes


def test_the_star_flag_is_the_texts() -> None:
    assert parse_cron("0 0 13 * 5").either
    assert parse_cron("0 0 1-31 * 5").either
    assert parse_cron("0 0 1,*/2 * 5").either
    assert not parse_cron("0 0 */2 * 5").either
    assert not parse_cron("0 0 13 * */2").either
    assert not parse_cron("0 0 *,13 * 5").either
    assert parse_cron("0 * * * *").frequent
    assert parse_cron("0 */2 * * *").frequent
    assert not parse_cron("0 0-23 * * *").frequent


def test_a_full_field_without_a_star_means_every_day() -> None:
    assert parse_cron("0 0 1-31 * 5").next_wall(datetime(2026, 3, 2)) == datetime(2026, 3, 3)
    assert parse_cron("0 0 13 * 0-6").next_wall(datetime(2026, 3, 2)) == datetime(2026, 3, 3)


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases(alias: str) -> None:
    assert parse_cron(f" {alias.upper()}\t").period_seconds == parse_cron(ALIASES[alias]).period_seconds


def test_impossible_dates_beside_a_weekday_leave_the_weekday() -> None:
    cron = parse_cron("0 0 30 2 1")
    assert cron.next_wall(datetime(2026, 2, 24)) == datetime(2027, 2, 1)


def test_the_longest_wait_of_the_calendar() -> None:
    cron = parse_cron("0 0 29 2 */7")
    assert cron.next_wall(datetime(2088, 2, 29)) == datetime(2128, 2, 29)


def test_the_calendar_ends() -> None:
    assert parse_cron("59 23 31 12 *").next_wall(datetime(9998, 12, 31, 23, 59)) is None
    assert parse_cron("0 0 29 2 */7").next_wall(datetime(9990, 1, 1)) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("60 * * * *", "minute: 60 is out of range (0-59)"),
        ("* 24 * * *", "hour: 24 is out of range (0-23)"),
        ("* * 0 * *", "day-of-month: 0 is out of range (1-31)"),
        ("* * 32 * *", "day-of-month: 32 is out of range (1-31)"),
        ("* * * 13 *", "month: 13 is out of range (1-12)"),
        ("* * * 0 *", "month: 0 is out of range (1-12)"),
        ("* * * * 8", "day-of-week: 8 is out of range (0-7)"),
        ("1,,2 * * * *", "minute: an item of the list is empty"),
        (", * * * *", "minute: an item of the list is empty"),
        ("*/0 * * * *", "minute: a step of 0 never moves"),
        ("*/61 * * * *", "minute: a step of 61 leaves the field (0-59); steps restart at every field start"),
        ("*/ * * * *", "minute: `*/` has no number behind its `/`"),
        ("*/-5 * * * *", "minute: `*/-5` has no number behind its `/`"),
        ("0 22-2 * * *", "hour: `22-2` runs backwards; write two ranges"),
        ("50-10 * * * *", "minute: `50-10` runs backwards; write two ranges"),
        ("0 0 25-5 * *", "day-of-month: `25-5` runs backwards; write two ranges"),
        ("0 0 30 2 *", "day-of-month: none of the months has such a day; it can never fire"),
        ("0 0 31 4,6,9,11 *", "day-of-month: none of the months has such a day; it can never fire"),
        ("0 0 30 2 */2", "day-of-month: none of the months has such a day; it can never fire"),
    ],
)
def test_errors_name_the_field(text: str, said: str) -> None:
    assert faults(text) == [said]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 0 12 * * ?", "6 fields: this looks like Quartz"),
        ("0 0 12 ? * MON", "6 fields: this looks like Quartz"),
        ("0 10 * * ? *", "6 fields: this looks like EventBridge"),
        ("0 10 ? * MON-FRI 2027", "6 fields: this looks like EventBridge"),
        ("0 0 12 * * *", "6 fields: seconds first (Quartz, Spring) or a year last (EventBridge)?"),
        ("0 0 12 * * ? 2027", "7 fields: this looks like Quartz"),
        ("cron(0 10 * * ? *)", "EventBridge"),
        ("rate(5 minutes)", "EventBridge"),
        ("at(2027-01-01T00:00:00)", "EventBridge"),
        ("0 0 ? * 1", "day-of-month: `?` is Quartz or EventBridge syntax"),
        ("0 0 L * *", "day-of-month: `L` (last)"),
        ("0 0 L-3 * *", "day-of-month: `L` (last)"),
        ("0 0 LW * *", "day-of-month: `L` (last)"),
        ("0 0 * * 5L", "day-of-week: `L` (last)"),
        ("0 0 * * friL", "day-of-week: `L` (last)"),
        ("0 0 15W * *", "day-of-month: `W` (nearest weekday)"),
        ("0 0 * * 6#3", "day-of-week: `#`"),
        ("0 0 * * mon#1", "day-of-week: `#`"),
        ("H * * * *", "minute: `H` (hashed) is Jenkins syntax"),
        ("H/15 * * * *", "minute: `H` (hashed) is Jenkins syntax"),
        ("0 H(0-7) * * *", "hour: `H` (hashed) is Jenkins syntax"),
        ("R * * * *", "minute: `R` (random) is croniter syntax"),
        ("0 R(0-7) * * *", "hour: `R` (random) is croniter syntax"),
        ("0 0 1 * +mon", "day-of-week: `+` is OCPS 1.4 syntax"),
        ("R5/PT1H", "ISO 8601"),
        ("CRON_TZ=UTC 0 0 * * *", "belongs into `time_zone`"),
        ("@reboot", "@reboot is not known"),
        ("@every 5m", "is not known"),
        ("", "empty"),
        (" \t ", "empty"),
        ("* * * *", "4 fields"),
        ("hourly", "1 field;"),
        ("every 5 minutes", "3 fields"),
        ("0 0 * foo *", "month: `foo` is no name; use jan"),
        ("0 0 * * monday", "day-of-week: `monday` is no name; use sun"),
        ("jan * * * *", "minute: `jan` is not understood"),
        ("0 0 mon * *", "day-of-month: `mon` is not understood"),
        ("-5 * * * *", "minute: `-5` is not understood"),
        ("1.5 * * * *", "minute: `1.5` is not understood"),
        ("5-*/2 * * * *", "minute: `5-*/2` is not understood"),
        ("*-5 * * * *", "minute: `*-5` is not understood"),
        ("1-2-3 * * * *", "minute: `1-2-3` is not understood"),
        ("1/2/3 * * * *", "minute: `1/2/3` has no number"),
        ("٣ * * * *", "only ASCII may be used"),
        ("0 0 * * *\n", "only ASCII may be used"),
        ("0\u00a00 * * *", "only ASCII may be used"),
        ("0 0 * * \U0001f600", "only ASCII may be used"),
        ("0 0 * * *\x00", "only ASCII may be used"),
        (f"{'9' * 400} * * * *", "minute: 99999999999999999999 is out of range"),
        (f"*/{'9' * 400} * * * *", "minute: a step of 99999999999999999999"),
        ("0," * 400 + "0 * * * *", "longer than 500 characters"),
    ],
)
def test_foreign_dialects_and_strange_texts(text: str, words: str) -> None:
    (detail,) = faults(text)
    assert words in detail
    assert len(detail) < 250


def test_all_faults_at_once() -> None:
    assert faults("60 24 0 13 8") == [
        "minute: 60 is out of range (0-59)",
        "hour: 24 is out of range (0-23)",
        "day-of-month: 0 is out of range (1-31)",
        "month: 13 is out of range (1-12)",
        "day-of-week: 8 is out of range (0-7)",
    ]


@given(st.text(max_size=40) | st.text("0123456789*/,-?LW#HR@ \tabc+.", max_size=40))
@settings(max_examples=500)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    start = datetime(2026, 1, 1)
    try:
        following = parse_cron(text).next_wall(start)
    except ScheduleError:
        return
    assert following is not None
    assert start < following


def test_parsing_is_cached() -> None:
    assert parse_cron("17 3 * * *") is parse_cron("17 3 * * *")
