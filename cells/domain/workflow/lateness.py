"""Whether a signal comes too late: what folding will say of it, told from the few events that matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cells.domain.workflow.events import EventType

#: Events that matter, whatever the signal is called; of signals only those of its name.
LOOKED_AT = (
    EventType.WAIT_STARTED,
    EventType.TIMER_FIRED,
    EventType.SIGNAL_RECEIVED,
    EventType.COMPENSATION_STARTED,
)


class Waits:
    """The waits for one signal, as `folding` leaves them."""

    def __init__(self, name: str):
        self._name = name
        self._open: dict[str, int | None] = {}  # steps that wait, in their order: when their time is over
        self._buffered = 0
        self._timed_out = False
        self._compensating = False

    def read(self, events: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Events (type, data) in their order."""
        for type_, data in events:
            match type_:
                case EventType.COMPENSATION_STARTED:
                    self._compensating = True
                case EventType.WAIT_STARTED if data["name"] == self._name:
                    if self._buffered:
                        self._buffered -= 1
                    else:
                        self._open[data["step"]] = data.get("fire_at")
                case EventType.TIMER_FIRED if data["step"] in self._open:
                    del self._open[data["step"]]
                    self._timed_out = True
                case EventType.SIGNAL_RECEIVED if data["name"] == self._name:
                    self._signal()

    def late(self, at_ms: int, before: Iterable[int] = ()) -> bool:
        """Whether one that comes at an instant is late, behind others that came before and are not recorded:
        whatever is due by then is recorded first."""
        for at in (*before, at_ms):
            if self._compensating:
                return True
            for step in [s for s, due in self._open.items() if due is not None and due <= at]:
                del self._open[step]
                self._timed_out = True
            late = not self._open and self._timed_out
            self._signal()
        return late

    def _signal(self) -> None:
        if self._open:
            del self._open[next(iter(self._open))]
        else:
            self._buffered += 1
