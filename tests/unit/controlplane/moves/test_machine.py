"""The table of a move: every state with every event, and what must hold of it as a whole."""

from __future__ import annotations

import itertools

import pytest

from controlplane.moves.machine import ABORTABLE, ENDED, HELD, TRANSITIONS, Event, State, after

_WAY = [
    (State.PREPARE, Event.PREPARED, State.COPY),
    (State.COPY, Event.COPIED, State.CATCH_UP),
    (State.CATCH_UP, Event.CAUGHT_UP, State.BARRIER),
    (State.BARRIER, Event.RAISED, State.SEAL),
    (State.SEAL, Event.SEALED, State.HANDOFF),
    (State.HANDOFF, Event.HANDED_OFF, State.VERIFY),
    (State.VERIFY, Event.VERIFIED, State.CLEANUP),
    (State.CLEANUP, Event.CLEANED, State.DONE),
    (State.ABORTING, Event.UNDONE, State.ABORTED),
]
_BEFORE_HANDOFF = (State.PREPARE, State.COPY, State.CATCH_UP, State.BARRIER, State.SEAL)


def _expected(state: State, event: Event) -> State | None:
    for source, what, target in _WAY:
        if (state, event) == (source, what):
            return target
    if event is Event.LIFTED and state in (State.BARRIER, State.SEAL):
        return State.CATCH_UP
    if event is Event.TAKEN_OVER and state in (*_BEFORE_HANDOFF, State.HANDOFF):
        return State.PREPARE
    if event is Event.ABORT and state in _BEFORE_HANDOFF:
        return State.ABORTING
    return None


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_pair(state: State, event: Event) -> None:
    assert after(state, event) == _expected(state, event)


def test_nothing_follows_an_end_and_every_other_state_can_be_left() -> None:
    left = {source for transition in TRANSITIONS for source in transition.sources}
    assert left == set(State) - ENDED


def test_from_the_handoff_on_there_is_no_way_to_give_up() -> None:
    reached, todo = {State.VERIFY}, [State.VERIFY]
    while todo:
        state = todo.pop()
        for event in Event:
            target = after(state, event)
            if target is not None and target not in reached:
                reached.add(target)
                todo.append(target)
    assert reached == {State.VERIFY, State.CLEANUP, State.DONE}


def test_routers_hold_requests_from_the_barrier_to_the_handoff() -> None:
    assert {State.BARRIER, State.SEAL, State.HANDOFF} == HELD
    assert set(_BEFORE_HANDOFF) == ABORTABLE
