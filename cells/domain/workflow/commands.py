"""What is to be done next. A command is the event that will record it, before it has a place and
a time: whoever appends it does what belongs to it in the same transaction."""

from __future__ import annotations

from typing import Any

import msgspec

from cells.domain.workflow.definition import Step
from cells.domain.workflow.events import Event, EventType


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do. `delay_ms` is from when it is recorded, `at_ms` an instant: of its timer."""

    type: EventType
    data: dict[str, Any] = {}
    delay_ms: int | None = None
    at_ms: int | None = None
    step: Step | None = None  # what the definition says of it

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
    return Event(seq=seq, type=command.type.value, at=at, data=data, size=size)
