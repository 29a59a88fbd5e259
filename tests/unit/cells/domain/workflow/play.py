"""An engine in memory: it records commands, lets activities end as they are told, and time pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cells.domain.workflow.commands import Command, record
from cells.domain.workflow.decide import decide, timer_fired
from cells.domain.workflow.definition import Definition
from cells.domain.workflow.events import Event, EventType
from cells.domain.workflow.execution import Execution, Status, StepRecord
from cells.domain.workflow.folding import fold
from cells.domain.workflow.parsing import parse_definition

DAY = 86_400_000
DEADLINE_MS = DAY
ORDER = Path(__file__).parents[4].joinpath("cases/order_fulfillment.yaml").read_text()
ORDER_INPUT = {"order_id": 88213, "amount_cents": 4599}


class Play:
    """One execution. `history` is all it knows; what it means is folded on as it grows."""

    def __init__(self, text: str, given: Any = None, *, run_id: str = "wr_1", first: bool = True):
        self.definition: Definition = parse_definition(text)
        self.history: list[Event] = []
        self.execution = Execution()
        self.now = 1_800_000_000_000
        self.append(
            EventType.STARTED,
            workflow_id="order-88213",
            run_id=run_id,
            definition=self.definition.workflow,
            version=self.definition.version,
            input=given,
            first=first,
        )

    @property
    def status(self) -> Status:
        return self.execution.status

    def append(self, kind: EventType, **data: Any) -> None:
        """Something happened."""
        self._add(Event(seq=len(self.history) + 1, type=kind, at=self.now, data=data))
        self.settle()

    def _add(self, event: Event) -> None:
        self.history.append(event)
        fold((event,), self.execution)

    def settle(self) -> None:
        """Decide until nothing is to be done."""
        for _ in range(10_000):
            commands = self.decide()
            if not commands:
                return
            for command in commands:
                self._record(command)
        raise AssertionError("it never comes to rest")

    def decide(self) -> list[Command]:
        return decide(self.definition, self.execution, deadline_ms=DEADLINE_MS)

    def _record(self, command: Command) -> None:
        self._add(record(command, seq=len(self.history) + 1, at=self.now))

    def runs(self) -> dict[str, StepRecord]:
        """Activities and children under way."""
        return {k: r for k, r in self.execution.open.items() if r.kind in ("activity", "child")}

    def succeed(self, step: str, result: Any = None) -> None:
        self.append(EventType.ACTIVITY_COMPLETED, step=step, result=result)

    def fail(self, step: str, error: str = "declined", *, known: bool = True) -> None:
        self.append(EventType.ACTIVITY_FAILED, step=step, error=error, known=known)

    def signal(self, name: str, signal_id: str = "s-1", payload: Any = None) -> None:
        self.append(EventType.SIGNAL_RECEIVED, name=name, signal_id=signal_id, payload=payload)

    def wait(self, ms: int) -> None:
        """Let time pass; every timer whose time has come fires, the earliest first."""
        until = self.now + ms
        while True:
            at = self.execution.next_timer()
            if at is None or at > until:
                break
            self.now = max(self.now, at)
            self._record(timer_fired(self.definition, self.execution, self.execution.due_timers(at)[0]))
            self.settle()
        self.now = until

    def scheduled(self) -> list[str]:
        """Steps in the order in which activities were scheduled."""
        return [e.data["step"] for e in self.history if e.type == EventType.ACTIVITY_SCHEDULED]

    def keys(self) -> list[str]:
        """Idempotency keys in that order."""
        return [e.data["key"] for e in self.history if e.type == EventType.ACTIVITY_SCHEDULED]

    def run(self, outcome: Callable[[str], tuple[bool, bool]], *, turns: int = 2000) -> None:
        """Play to the end: activities end as `outcome(step)` says (succeeded, known)."""
        for _ in range(turns):
            if not self.execution.is_open:
                return
            runs = self.runs()
            if runs:
                step = min(runs)
                good, known = outcome(step)
                if good:
                    self.succeed(step, {"of": step})
                else:
                    self.fail(step, known=known)
            elif self.execution.next_timer() is not None:
                self.wait((self.execution.next_timer() or 0) - self.now)
            else:
                return
        raise AssertionError("it does not end")
