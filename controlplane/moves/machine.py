"""A move as a table: what may follow what. Pure.

```
PREPARE ─▶ COPY ─▶ CATCH_UP ─▶ BARRIER ─▶ SEAL ─▶ HANDOFF ─▶ VERIFY ─▶ CLEANUP ─▶ DONE
   ▲  ▲       │        ▲ │        │         │        │
   │  └───────┴────────┼─┴────────┴─────────┴────────┘ taken over (of HANDOFF: only if the claim lost)
   │                   └──────────┴─────────┘ lifted
   └ any state before HANDOFF ── abort ──▶ ABORTING ─▶ ABORTED
```
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.StrEnum):
    """Where a move is. Names are stored."""

    PREPARE = "PREPARE"  # both cells are made ready: nothing is copied yet
    COPY = "COPY"  # rows are copied, while the tenant works
    CATCH_UP = "CATCH_UP"  # changes follow; what is settled is compared
    BARRIER = "BARRIER"  # nothing new begins at the source, until a deadline
    SEAL = "SEAL"  # nothing is written at the source; the rest is compared
    HANDOFF = "HANDOFF"  # the tenant's ownership row is claimed for the destination
    VERIFY = "VERIFY"  # the tenant works at the destination; everybody is told
    CLEANUP = "CLEANUP"  # what is left at the source goes, once it is metered
    DONE = "DONE"
    ABORTING = "ABORTING"  # both cells forget the move
    ABORTED = "ABORTED"


class Event(enum.StrEnum):
    """What takes a move on."""

    PREPARED = "PREPARED"
    COPIED = "COPIED"
    CAUGHT_UP = "CAUGHT_UP"
    RAISED = "RAISED"  # the barrier is up
    SEALED = "SEALED"  # and the destination has everything
    HANDED_OFF = "HANDED_OFF"
    VERIFIED = "VERIFIED"
    CLEANED = "CLEANED"
    LIFTED = "LIFTED"  # the barrier or the seal did not hold: the tenant works on at the source
    TAKEN_OVER = "TAKEN_OVER"  # another owner took a cell or the tenant over: begin again, from nothing
    ABORT = "ABORT"
    UNDONE = "UNDONE"


@dataclass(frozen=True, kw_only=True, slots=True)
class Transition:
    """One arrow, from any of its sources."""

    event: Event
    sources: frozenset[State]
    destination: State


#: Where a move can still be given up: the tenant lives at the source.
ABORTABLE = frozenset({State.PREPARE, State.COPY, State.CATCH_UP, State.BARRIER, State.SEAL})
#: Nothing follows.
ENDED = frozenset({State.DONE, State.ABORTED})
#: Routers hold the tenant's requests back for a moment.
HELD = frozenset({State.BARRIER, State.SEAL, State.HANDOFF})

TRANSITIONS: tuple[Transition, ...] = (
    Transition(event=Event.PREPARED, sources=frozenset({State.PREPARE}), destination=State.COPY),
    Transition(event=Event.COPIED, sources=frozenset({State.COPY}), destination=State.CATCH_UP),
    Transition(event=Event.CAUGHT_UP, sources=frozenset({State.CATCH_UP}), destination=State.BARRIER),
    Transition(event=Event.RAISED, sources=frozenset({State.BARRIER}), destination=State.SEAL),
    Transition(event=Event.SEALED, sources=frozenset({State.SEAL}), destination=State.HANDOFF),
    Transition(event=Event.HANDED_OFF, sources=frozenset({State.HANDOFF}), destination=State.VERIFY),
    Transition(event=Event.VERIFIED, sources=frozenset({State.VERIFY}), destination=State.CLEANUP),
    Transition(event=Event.CLEANED, sources=frozenset({State.CLEANUP}), destination=State.DONE),
    Transition(
        event=Event.LIFTED, sources=frozenset({State.BARRIER, State.SEAL}), destination=State.CATCH_UP
    ),
    Transition(event=Event.TAKEN_OVER, sources=ABORTABLE | {State.HANDOFF}, destination=State.PREPARE),
    Transition(event=Event.ABORT, sources=ABORTABLE, destination=State.ABORTING),
    Transition(event=Event.UNDONE, sources=frozenset({State.ABORTING}), destination=State.ABORTED),
)

_TABLE = {(source, t.event): t.destination for t in TRANSITIONS for source in t.sources}


def after(state: State, event: Event) -> State | None:
    """Where an event takes a move; None where it means nothing."""
    return _TABLE.get((state, event))
