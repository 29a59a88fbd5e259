"""What a signal is answered is what folding says of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cells.domain.workflow.events import Event, EventType
from cells.domain.workflow.folding import fold
from cells.domain.workflow.lateness import Waits

NAMES = ("go", "other")


class History:
    """Events as an engine appends them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 1_000
        self.add(EventType.STARTED, workflow_id="w", run_id="r", definition="d", version=1)

    def add(self, kind: EventType, **data: Any) -> None:
        self.events.append(Event(seq=len(self.events) + 1, type=kind, at=self.now, data=data))

    def signal(self, name: str, signal_id: str) -> None:
        """It comes now, behind every timer that is due."""
        for step in fold(self.events).due_timers(self.now):
            self.add(EventType.TIMER_FIRED, step=step, then="continue")
        self.add(EventType.SIGNAL_RECEIVED, name=name, signal_id=signal_id)


ACTS = st.tuples(st.sampled_from(["wait", "timed", "signal", "time"]), st.sampled_from(NAMES))


@settings(max_examples=300, deadline=None)
@given(st.lists(ACTS, max_size=14), st.integers(0, 3))
def test_it_says_what_folding_will_say(acts: list[tuple[str, str]], waiting: int) -> None:
    history = History()
    for n, (act, name) in enumerate(acts):
        match act:
            case "wait":
                history.add(EventType.WAIT_STARTED, step=f"s{n}", name=name)
            case "timed":
                history.add(EventType.WAIT_STARTED, step=f"s{n}", name=name, fire_at=history.now + 10)
            case "signal":
                history.signal(name, f"s-{n}")
            case "time":
                history.now += 7
    waits = Waits("go")
    waits.read((e.type, e.data) for e in history.events)
    before = []
    for n in range(waiting):
        before.append(history.now)
        history.signal("go", f"before-{n}")
        history.now += 5
    late = waits.late(history.now, before)
    history.signal("go", "this")
    assert late is ("this" in fold(history.events).late_signals)
