"""One page of several stores' pages, and the way to the next."""

from __future__ import annotations

from typing import Any

import pytest

from cells.api.problems import Problem
from cells.api.spread.merging import Page, Place, after, merge, read_places, summed, write_places


def items(*instants: str) -> list[dict[str, Any]]:
    return [{"id": text, "at": f"2026-11-30T12:00:{text}Z"} for text in instants]


def test_the_latest_come_first_and_each_store_keeps_its_order() -> None:
    pages = {
        0: Page(items=items("09", "05.500", "05"), next_cursor="a"),
        1: Page(items=items("08", "05.250"), next_cursor=None),
    }
    found, taken = merge(pages, by="at", limit=4)
    assert [item["id"] for item in found] == ["09", "08", "05.500", "05.250"]
    assert taken == {0: 2, 1: 2}


def test_a_store_goes_on_behind_what_was_taken() -> None:
    page, place = Page(items=items("09", "08"), next_cursor="next"), Place("this")
    assert after(place, page, 2) == Place("next")
    assert after(place, page, 0) == place
    assert after(place, page, 1) is None
    assert after(place, Page(items=[], next_cursor=None), 0) == Place(None, ended=True)


def test_the_cursor_of_a_merged_page_holds_one_for_each_store() -> None:
    places = {0: Place("abc"), 1: Place(None, ended=True), 2: Place(None)}
    cursor = write_places(places)
    assert cursor is not None
    assert read_places(cursor) == places
    assert read_places("plain") == {0: Place("plain")}
    assert read_places(None) == {}
    with pytest.raises(Problem, match="1 fault"):
        read_places("m.!!")


def test_it_ends_where_all_that_answer_have_ended() -> None:
    ended = Place(None, ended=True)
    assert write_places({0: ended, 1: ended}) is None
    assert write_places({0: ended, 1: Place("x")}, silent={1}) is None
    assert write_places({0: Place("y"), 1: Place("x")}, silent={1}) is not None


def test_dead_letters_of_one_fingerprint_are_one_group() -> None:
    group = {"fingerprint": "f", "count": 2, "first_failed_at": "2", "last_failed_at": "5"}
    other = group | {"count": 3, "first_failed_at": "1", "last_failed_at": "4"}
    (found,) = summed([[group], [other]], key="fingerprint", most=50)
    assert found == group | {"count": 5, "first_failed_at": "1", "last_failed_at": "5"}
