"""The life of an export: every pair of a state and a move."""

from __future__ import annotations

import itertools

import pytest

from billing.exports.machine import TRANSITIONS, ExportState, allowed, destination

S = ExportState
MAY = {
    ("request", None): S.REQUESTED,
    ("begin", S.REQUESTED): S.RUNNING,
    ("take_over", S.RUNNING): S.RUNNING,
    ("retry", S.RUNNING): S.REQUESTED,
    ("finish", S.RUNNING): S.DONE,
    ("give_up", S.RUNNING): S.FAILED,
    ("expire", S.DONE): S.EXPIRED,
}


@pytest.mark.parametrize(
    ("name", "state"), list(itertools.product([t.name for t in TRANSITIONS], [None, *ExportState]))
)
def test_every_pair(name: str, state: ExportState | None) -> None:
    assert allowed(name, state) == ((name, state) in MAY)
    if (name, state) in MAY:
        assert destination(name) == MAY[name, state]
