"""Trace contexts as W3C writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.domain.trace import (
    context_of,
    first_span,
    is_sampled,
    span_in,
    span_of,
    state_of,
    tracestate_of,
    well_formed,
)

ASKER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_traceparents() -> None:
    assert well_formed(ASKER) == ASKER
    for wrong in (
        None,
        "",
        ASKER + "0",
        ASKER.upper(),
        ASKER.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
    ):
        assert well_formed(wrong) is None
    assert span_in(ASKER, 0)[36:52] == f"{1:016x}"
    assert is_sampled(ASKER)
    assert not is_sampled(ASKER[:-1] + "2")
    assert well_formed(first_span(0, 0)) is not None


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        ([], None),
        (["", " , "], None),
        (["congo=t61rcWkgMzE"], "congo=t61rcWkgMzE"),
        (["a=1, b=2", "c@sys=3\t"], "a=1,b=2,c@sys=3"),
        (["a=1,Upper=2"], None),  # one malformed member, and W3C says to drop all
        (["a="], None),
        (["a=1=2"], None),
        (["a=\u00e9"], None),
        ([",".join(f"k{n}=v" for n in range(40))], ",".join(f"k{n}=v" for n in range(32))),
        ([",".join(f"k{n}={'v' * 200}" for n in range(4))], ",".join(f"k{n}={'v' * 200}" for n in range(2))),
    ],
)
def test_tracestates(headers: list[str], kept: str | None) -> None:
    assert state_of(headers) == kept


@given(st.lists(st.text(max_size=60), max_size=40))
def test_any_tracestate_is_within_bounds_or_dropped(headers: list[str]) -> None:
    kept = state_of(headers)
    if kept is not None:
        assert (len(kept) <= 512, kept.count(",") < 32, state_of([kept])) == (True, True, kept)


def test_a_tracestate_is_kept_behind_its_span() -> None:
    kept = context_of(ASKER, "a=b c")
    assert (span_of(kept), tracestate_of(kept)) == (ASKER, "a=b c")
    assert (span_of(ASKER), tracestate_of(ASKER)) == (ASKER, None)
    assert context_of(None, "a=1") is None
    assert context_of(ASKER, None) == ASKER
    assert (span_of("junk a=1"), tracestate_of("junk a=1"), span_of(None)) == (None, None, None)
