"""An evacuation as two tables: what may follow what, for the whole and for each of its cells. Pure.

```
whole:  RUNNING ◀─pause/resume─▶ PAUSED        RUNNING ─▶ DONE
           └──────── abort ─────────┴─▶ ABORTING ─▶ ABORTED      abort once more: nothing is brought back

a cell: WAITING ─▶ SETTLE ─▶ CATCH_UP ─▶ HAND_OVER ─▶ WATCH ─▶ DONE
                      │         ▲ │  ▲        │ lifted         │
              owner   │ answers │ │  └────────┘                │ back
              silent  └────▶ TAKEOVER ─ taken ─▶ WATCH         └─▶ SETTLE, in the other direction
        any before HAND_OVER ── abort ──▶ UNDOING ─▶ ABORTED
        any before HAND_OVER ── gone ───▶ SKIPPED
        CATCH_UP ── taken: the target owns it after all ─▶ WATCH ── taken back: the source does ─▶ CATCH_UP
```
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Whole(enum.StrEnum):
    """Where an evacuation is. Names are stored."""

    RUNNING = "RUNNING"  # cells are handed over, a few at a time
    PAUSED = "PAUSED"  # no cell is begun or handed over; what was handed over is watched
    ABORTING = "ABORTING"  # cells under way are set right, and perhaps brought back
    DONE = "DONE"  # every cell is where it was to be, or is skipped
    ABORTED = "ABORTED"


class State(enum.StrEnum):
    """Where one cell of it is. Names are stored."""

    WAITING = "WAITING"  # its turn has not come
    SETTLE = "SETTLE"  # it takes no new tenants; moves from and to it end
    CATCH_UP = "CATCH_UP"  # until the target has nearly all of its log
    HAND_OVER = "HAND_OVER"  # its keeper holds its claims, and hands over once the target has all
    TAKEOVER = "TAKEOVER"  # its owner is silent: survivors take it over, with a loss that is written down
    WATCH = "WATCH"  # it works at the target; its lag has to be small for a while
    DONE = "DONE"
    UNDOING = "UNDOING"  # it stays where it is, and takes tenants as before
    ABORTED = "ABORTED"
    SKIPPED = "SKIPPED"  # it went elsewhere by itself, or cannot go


class Event(enum.StrEnum):
    """What takes a cell on."""

    BEGUN = "BEGUN"
    SETTLED = "SETTLED"  # no move needs its present owner
    CAUGHT_UP = "CAUGHT_UP"
    HANDED_OVER = "HANDED_OVER"  # the ownership row names the target, and it holds the lease
    LIFTED = "LIFTED"  # the target had not all of it in time: the cell works on where it was
    OWNER_SILENT = "OWNER_SILENT"
    OWNER_ANSWERS = "OWNER_ANSWERS"
    TAKEN = "TAKEN"  # a survivor owns it, or the target does after all
    TAKEN_BACK = "TAKEN_BACK"  # the source owns it again, without our doing
    CALM = "CALM"  # its lag was small for long enough
    GONE = "GONE"  # another region than the source owns it, without our doing
    ABORT = "ABORT"
    UNDONE = "UNDONE"
    BACK = "BACK"  # source and target change places


@dataclass(frozen=True, kw_only=True, slots=True)
class Transition:
    """One arrow, from any of its sources."""

    event: Event
    sources: frozenset[State]
    destination: State


#: Where a cell can still stay where it is.
ABORTABLE = frozenset({State.WAITING, State.SETTLE, State.CATCH_UP, State.TAKEOVER})
#: Nothing follows, but for the way back from DONE.
ENDED = frozenset({State.DONE, State.ABORTED, State.SKIPPED})
#: States in which a pause holds a cell: the others settle what was begun.
HELD_BY_PAUSE = frozenset({State.WAITING, State.SETTLE, State.CATCH_UP, State.TAKEOVER})
ENDED_WHOLE = frozenset({Whole.DONE, Whole.ABORTED})

TRANSITIONS: tuple[Transition, ...] = (
    Transition(event=Event.BEGUN, sources=frozenset({State.WAITING}), destination=State.SETTLE),
    Transition(event=Event.SETTLED, sources=frozenset({State.SETTLE}), destination=State.CATCH_UP),
    Transition(event=Event.CAUGHT_UP, sources=frozenset({State.CATCH_UP}), destination=State.HAND_OVER),
    Transition(event=Event.HANDED_OVER, sources=frozenset({State.HAND_OVER}), destination=State.WATCH),
    Transition(event=Event.LIFTED, sources=frozenset({State.HAND_OVER}), destination=State.CATCH_UP),
    Transition(
        event=Event.OWNER_SILENT,
        sources=frozenset({State.SETTLE, State.CATCH_UP, State.HAND_OVER}),
        destination=State.TAKEOVER,
    ),
    Transition(event=Event.OWNER_ANSWERS, sources=frozenset({State.TAKEOVER}), destination=State.CATCH_UP),
    Transition(
        event=Event.TAKEN,
        sources=frozenset({State.TAKEOVER, State.HAND_OVER, State.CATCH_UP}),
        destination=State.WATCH,
    ),
    Transition(event=Event.TAKEN_BACK, sources=frozenset({State.WATCH}), destination=State.CATCH_UP),
    Transition(event=Event.CALM, sources=frozenset({State.WATCH}), destination=State.DONE),
    Transition(event=Event.GONE, sources=ABORTABLE - {State.TAKEOVER}, destination=State.SKIPPED),
    Transition(event=Event.ABORT, sources=ABORTABLE, destination=State.UNDOING),
    Transition(event=Event.UNDONE, sources=frozenset({State.UNDOING}), destination=State.ABORTED),
    Transition(event=Event.BACK, sources=frozenset({State.DONE, State.WATCH}), destination=State.SETTLE),
)

_TABLE = {(source, t.event): t.destination for t in TRANSITIONS for source in t.sources}

#: Of the whole: what an operator asks for, from where to where; and how it ends by itself.
WHOLE: dict[tuple[Whole, str], Whole] = {
    (Whole.RUNNING, "pause"): Whole.PAUSED,
    (Whole.PAUSED, "resume"): Whole.RUNNING,
    (Whole.RUNNING, "abort"): Whole.ABORTING,
    (Whole.PAUSED, "abort"): Whole.ABORTING,
    (Whole.ABORTING, "abort"): Whole.ABORTING,  # what is on its way back, or was to come, stays where it is
    (Whole.RUNNING, "end"): Whole.DONE,
    (Whole.ABORTING, "end"): Whole.ABORTED,
}


def after(state: State, event: Event) -> State | None:
    """Where an event takes a cell; None where it means nothing."""
    return _TABLE.get((state, event))
