"""Zones and their transitions, against the zone files themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
import tzdata
from hypothesis import given, settings
from hypothesis import strategies as st

from cells.domain.zones import (
    EARLIEST,
    NAMES,
    TZDATA_VERSION,
    changes,
    offset_text,
    to_local,
    transitions,
    zone,
)
from tests.unit.cells.domain import tzif

SOME_YEARS = timedelta(days=8 * 365)
SINCE = int(EARLIEST.timestamp())
UNTIL = int(datetime(2037, 1, 1, tzinfo=UTC).timestamp())


def test_the_version_is_the_packages() -> None:
    assert tzdata.IANA_VERSION == TZDATA_VERSION


def test_every_zone_of_the_package_can_be_used() -> None:
    assert set(tzif.names()) <= NAMES
    for name in NAMES:
        assert zone(name).key == name


@given(name=st.sampled_from(tzif.names()), start=st.integers(SINCE, UNTIL - int(SOME_YEARS.total_seconds())))
@settings(max_examples=150, deadline=None)
def test_changes_are_the_files(name: str, start: int) -> None:
    low = datetime.fromtimestamp(start, UTC)
    listed = tzif.jumps(name)
    high = min(low + SOME_YEARS, datetime.fromtimestamp(listed[-1].at if listed else UNTIL, UTC))
    found = [
        (int(c.at.timestamp()), int(c.before.total_seconds()), int(c.after.total_seconds()))
        for c in changes(zone(name), low, high)
    ]
    assert found == [j for j in listed if start < j.at <= high.timestamp()]


@given(name=st.sampled_from(tzif.names()))
@settings(max_examples=30, deadline=None)
def test_changes_are_what_the_clock_shows(name: str) -> None:
    low, high = datetime(2024, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
    found = [int(c.at.timestamp()) for c in changes(zone(name), low, high)]
    assert found == [j.at for j in tzif.watched(name)]


def test_no_real_transition_hides_between_two_look_ups() -> None:
    """`changes` looks once a day; two jumps within a day could cancel out unseen."""
    for name in tzif.names():
        ats = [j.at for j in tzif.jumps(name) if j.at >= SINCE]
        assert all(b - a > 86_400 for a, b in pairwise(ats)), name


def test_transitions_for_people() -> None:
    spring, autumn = transitions("Europe/Berlin", datetime(2026, 1, 1, tzinfo=UTC))
    assert (spring.at, spring.from_offset, spring.to_offset, spring.kind, spring.local) == (
        datetime(2026, 3, 29, 1, tzinfo=UTC), "+01:00", "+02:00", "gap", "2026-03-29T03:00:00+02:00",
    )  # fmt: skip
    assert (autumn.at, autumn.kind, autumn.local) == (
        datetime(2026, 10, 25, 1, tzinfo=UTC), "overlap", "2026-10-25T02:00:00+01:00",
    )  # fmt: skip
    assert transitions("Europe/Berlin", autumn.at, 1)[0].kind == "gap"  # strictly after


@pytest.mark.parametrize("name", ["UTC", "Asia/Kolkata", "Etc/GMT-14"])
def test_zones_without_transitions(name: str) -> None:
    assert transitions(name, datetime(2026, 1, 1, tzinfo=UTC)) == []


def test_transitions_at_the_ends_of_the_calendar() -> None:
    assert transitions("Europe/Berlin", datetime.max.replace(tzinfo=UTC)) == []
    assert transitions("Europe/Berlin", datetime.min.replace(tzinfo=UTC)) == []
    assert transitions("Europe/Berlin", datetime(2026, 1, 1, tzinfo=UTC), 0) == []


def test_offsets() -> None:
    assert offset_text(timedelta(hours=5, minutes=45)) == "+05:45"
    assert offset_text(-timedelta(hours=3, minutes=30)) == "-03:30"
    assert offset_text(-timedelta(minutes=44, seconds=30)) == "-00:44:30"
    assert to_local(datetime(2026, 7, 1, tzinfo=UTC), None) == "2026-07-01T00:00:00+00:00"
