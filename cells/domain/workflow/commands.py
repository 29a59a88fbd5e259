"""What is to be done next. A command is the event that will record it, before it has a place and
a time: whoever appends it does what belongs to it in the same transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cells.domain.workflow.definition import Step
from cells.domain.workflow.events import Event, EventType


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One thing to do. `delay_ms` is from when it is recorded, `at_ms` an instant: of its timer."""

    type: EventType
    data: dict[str, Any] = field(default_factory=dict)
    delay_ms: int | None = None
    at_ms: int | None = None
    step: Step | None = field(default=None, compare=False)  # what the definition says of it

    @property
    def key(self) -> str:
        """The step it is about."""
        return str(self.data.get("step", ""))


def record(command: Command, *, seq: int, at: int, size: int = 0) -> Event:
    """The event of a command that is appended at epoch millisecond `at`."""
    data = command.data
    if command.delay_ms is not None:
        data = {**data, "fire_at": at + command.delay_ms}
    elif command.at_ms is not None:
        data = {**data, "fire_at": command.at_ms}
    return Event(seq=seq, type=command.type, at=at, data=data, size=size)
