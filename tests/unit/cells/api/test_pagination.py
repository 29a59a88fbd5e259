"""Cursors: opaque, and only good for the list they come from."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.api.pagination import make_cursor, next_link, read_cursor
from cells.api.problems import Problem

Place = tuple[uuid.UUID, int, int]


@given(st.uuids(), st.integers(-(2**40), 2**40), st.integers(0, 10**9))
def test_a_cursor_gives_its_key_back(parent: uuid.UUID, at: int, ordinal: int) -> None:
    key = (parent, at, ordinal)
    text = make_cursor("runs", {"state": "FAILED", "target": None}, key)
    assert read_cursor(text, "runs", {"state": "FAILED"}, Place) == key
    assert text.isascii()
    assert not set(text) & set("=+/")


def test_no_cursor_is_the_first_page() -> None:
    assert read_cursor(None, "jobs", {}, uuid.UUID) is None


@given(st.text(max_size=60))
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(Problem) as refused:
        read_cursor(text, "jobs", {}, uuid.UUID)
    assert (refused.value.status, refused.value.errors[0]["parameter"]) == (422, "cursor")


@pytest.mark.parametrize(("kind", "filters"), [("runs", {"a": 1}), ("jobs", {"a": 2}), ("jobs", {})])
def test_a_cursor_of_another_list_is_refused(kind: str, filters: dict[str, int]) -> None:
    text = make_cursor("jobs", {"a": 1}, uuid.uuid4())
    with pytest.raises(Problem) as refused:
        read_cursor(text, kind, filters, uuid.UUID)
    assert refused.value.errors == [
        {"parameter": "cursor", "detail": "belongs to another list or to other filters"}
    ]


def test_the_link_keeps_the_filters() -> None:
    assert next_link("/v1/jobs", {"tag": "a b", "state": None}, 20, "abc") == {
        "Link": '</v1/jobs?tag=a+b&limit=20&cursor=abc>; rel="next"'
    }
    assert next_link("/v1/jobs", {}, 20, None) == {}
