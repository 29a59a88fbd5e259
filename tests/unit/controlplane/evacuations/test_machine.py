"""The tables of an evacuation: every state with every event, and what must hold of any way through them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.evacuations.machine import (
    ABORTABLE,
    ENDED,
    ENDED_WHOLE,
    HELD_BY_PAUSE,
    TRANSITIONS,
    WHOLE,
    Event,
    State,
    Whole,
    after,
)

_TABLE = {
    (State.WAITING, Event.BEGUN): State.SETTLE,
    (State.SETTLE, Event.SETTLED): State.CATCH_UP,
    (State.CATCH_UP, Event.CAUGHT_UP): State.HAND_OVER,
    (State.HAND_OVER, Event.HANDED_OVER): State.WATCH,
    (State.HAND_OVER, Event.LIFTED): State.CATCH_UP,
    (State.HAND_OVER, Event.TAKEN): State.WATCH,
    (State.TAKEOVER, Event.TAKEN): State.WATCH,
    (State.CATCH_UP, Event.TAKEN): State.WATCH,
    (State.WATCH, Event.TAKEN_BACK): State.CATCH_UP,
    (State.TAKEOVER, Event.OWNER_ANSWERS): State.CATCH_UP,
    (State.WATCH, Event.CALM): State.DONE,
    (State.UNDOING, Event.UNDONE): State.ABORTED,
    (State.DONE, Event.BACK): State.SETTLE,
    (State.WATCH, Event.BACK): State.SETTLE,
    **{(s, Event.OWNER_SILENT): State.TAKEOVER for s in (State.SETTLE, State.CATCH_UP, State.HAND_OVER)},
    **{(s, Event.GONE): State.SKIPPED for s in (State.WAITING, State.SETTLE, State.CATCH_UP)},
    **{
        (s, Event.ABORT): State.UNDOING for s in (State.WAITING, State.SETTLE, State.CATCH_UP, State.TAKEOVER)
    },
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_pair(state: State, event: Event) -> None:
    assert after(state, event) == _TABLE.get((state, event))


def test_every_state_but_an_end_can_be_left_and_reached() -> None:
    left = {source for transition in TRANSITIONS for source in transition.sources}
    assert left == (set(State) - ENDED) | {State.DONE}
    assert {t.destination for t in TRANSITIONS} == set(State) - {State.WAITING}


@given(st.lists(st.sampled_from(Event), max_size=60))
def test_any_way_keeps_its_promises(events: list[Event]) -> None:
    """Whatever happens in whatever order: a cell is called handed over only after it was, one that stayed
    or was skipped never was, and who can be given up has not been."""
    state, asked, moved = State.WAITING, False, False
    for event in events:
        target = after(state, event)
        if target is None:
            continue
        if event in (Event.BACK, Event.TAKEN_BACK):
            asked = moved = False  # the same way, in the other direction; or once more
        if target is State.HAND_OVER:
            asked = True
        moved |= event in (Event.HANDED_OVER, Event.TAKEN)
        state = target
        if state in (State.WATCH, State.DONE):
            assert moved
            assert asked or event is not Event.HANDED_OVER
        if state in ABORTABLE | {State.UNDOING, State.ABORTED, State.SKIPPED}:
            assert not moved
    if state in ENDED - {State.DONE}:
        assert all(after(state, event) is None for event in Event)


def test_what_was_asked_for_is_settled_whatever_the_whole_does() -> None:
    assert {State.HAND_OVER, State.WATCH, State.UNDOING}.isdisjoint(HELD_BY_PAUSE | ABORTABLE)
    assert HELD_BY_PAUSE == ABORTABLE


@given(st.lists(st.sampled_from(Event), max_size=60))
def test_whoever_is_under_way_can_be_given_up(events: list[Event]) -> None:
    """From anywhere an end is reached by what needs no other region: an abort, a wish that did not hold, a
    cell that is left where it is watched."""
    state = State.WAITING
    for event in events:
        state = after(state, event) or state
    for _ in range(3):
        for event in (Event.ABORT, Event.UNDONE, Event.LIFTED, Event.CALM):
            state = after(state, event) or state
    assert state in ENDED


@pytest.mark.parametrize(
    ("state", "verb"), list(itertools.product(Whole, ("pause", "resume", "abort", "end")))
)
def test_every_verb_of_the_whole(state: Whole, verb: str) -> None:
    expected = {
        (Whole.RUNNING, "pause"): Whole.PAUSED,
        (Whole.PAUSED, "resume"): Whole.RUNNING,
        (Whole.RUNNING, "abort"): Whole.ABORTING,
        (Whole.PAUSED, "abort"): Whole.ABORTING,
        (Whole.ABORTING, "abort"): Whole.ABORTING,
        (Whole.RUNNING, "end"): Whole.DONE,
        (Whole.ABORTING, "end"): Whole.ABORTED,
    }
    assert WHOLE.get((state, verb)) == expected.get((state, verb))
    if state in ENDED_WHOLE:
        assert WHOLE.get((state, verb)) is None
