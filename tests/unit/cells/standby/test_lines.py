"""Timelines, forks and places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.standby.lines import Fork, Line, Place, Promotion, format_lsn, line_of, next_timeline, parse_lsn


@given(st.integers(0, 2**64 - 1))
def test_positions_read_as_they_were_written(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


@pytest.mark.parametrize("text", ["", "0", "0/", "/0", "0/G", "1/2/3", "0/123456789"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no position"):
        parse_lsn(text)


def test_a_history_file_as_postgres_writes_it() -> None:
    text = "1\t0/3000158\tno recovery target specified\n\n2\t0/5000000\tno recovery target specified\n"
    line = Line.parse(3, text)
    assert line == Line(timeline=3, forks=(Fork(timeline=1, at=0x3000158), Fork(timeline=2, at=0x5000000)))
    assert Line.read(line.text()) == line
    place = Place(line=line, lsn=0x5000010)
    assert Place.read(place.text()) == place


@pytest.mark.parametrize("text", ["x\t0/1\n", "1\n", "1\t0/z\n", "2\t0/1\t\n1\t0/2\t\n", "4\t0/1\t\n"])
def test_what_is_no_history_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Line.parse(3, text)


def test_a_place_before_the_fork_lies_on_the_line_and_one_behind_it_does_not() -> None:
    first = Line()
    second = first.forked(at=100, timeline=2)
    assert Place(line=first, lsn=100).lies_on(second)
    assert not Place(line=first, lsn=101).lies_on(second)
    assert Place(line=second, lsn=500).lies_on(second)
    assert not Place(line=second, lsn=500).lies_on(first)
    # The same number, begun elsewhere: another line.
    assert not Place(line=first.forked(at=90, timeline=2), lsn=95).lies_on(second)
    assert not Place(line=first.forked(at=100, timeline=3), lsn=100).lies_on(second)


def _promoted(*steps: tuple[int, int, int]) -> list[Promotion]:
    return [
        Promotion(timeline=timeline, epoch=10 + timeline, site="x", parent=parent, fork=fork)
        for timeline, parent, fork in steps
    ]


def test_the_cells_line_is_that_of_its_newest_promotion() -> None:
    assert line_of([]) == Line()
    assert line_of(_promoted((1, 0, 0))) == Line()
    promotions = _promoted((1, 0, 0), (2, 1, 100), (3, 1, 80))
    assert line_of(promotions) == Line(timeline=3, forks=(Fork(timeline=1, at=80),))
    assert next_timeline(promotions) == 4
    assert next_timeline([]) == 2


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.data())
def test_every_earlier_place_of_a_line_lies_on_it(lengths: list[int], data: st.DataObject) -> None:
    line, at = Line(), 0
    places = []
    for number, length in enumerate(lengths, 2):
        places += [Place(line=line, lsn=at + part) for part in {0, length // 2, length}]
        at += length
        line = line.forked(at=at, timeline=number)
    assert all(place.lies_on(line) for place in places)
    strayed = data.draw(st.sampled_from(places))
    beyond = next(fork.at for fork in line.forks if fork.timeline == strayed.line.timeline) + 1
    assert not Place(line=strayed.line, lsn=beyond).lies_on(line)


def test_only_a_line_that_the_owners_left_may_be_rewound() -> None:
    owner = Line.read("1@0/3000000 3@0/5000000 4")
    for text in ("1", "1@0/3000000 3", "1@0/3000000 3@0/5000000 4"):
        assert Line.read(text).leads_to(owner), text
    # Another timeline, another fork, and one that the owner never was on.
    for text in ("2", "1@0/2000000 3", "1@0/3000000 2", "1@0/3000000 3@0/5000000 4@0/6000000 5"):
        assert not Line.read(text).leads_to(owner), text
