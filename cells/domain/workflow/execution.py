"""What a history means: the state of one execution, as folding it leaves it."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import msgspec

from cells.domain.workflow.events import (
    BYTE_LIMIT,
    EVENT_LIMIT,
    FULL_BYTES,
    RESERVE,
    WARNING_SHARE,
)

#: The timer behind which compensation is stuck, in place of a step's key.
DEADLINE = "!deadline"


class Status(enum.StrEnum):
    """How an execution is."""

    RUNNING = "RUNNING"  # has steps to do, or waits
    COMPENSATING = "COMPENSATING"  # undoes what it did
    COMPENSATION_STUCK = "COMPENSATION_STUCK"  # could not undo something in time; needs a person
    COMPLETED = "COMPLETED"  # all steps ended
    COMPENSATED = "COMPENSATED"  # failed, and all was undone
    FAILED = "FAILED"  # failed, and something was not undone
    CANCELLED = "CANCELLED"  # cancelled, and all was undone
    TERMINATED = "TERMINATED"  # ended by somebody, with nothing undone
    CONTINUED_AS_NEW = "CONTINUED_AS_NEW"  # goes on in another execution


#: No set: members of an enumeration are hashed by Python.
OPEN = (Status.RUNNING, Status.COMPENSATING, Status.COMPENSATION_STUCK)


class StepState(enum.IntEnum):
    """How one step of an execution is."""

    OPEN = 0  # begun: a run, a child, a wait or a timer is under way
    COMPLETED = 1
    FAILED = 2
    SKIPPED = 3
    GROUP = 4  # parallel and map: what is inside says how it is
    ABANDONED = 5  # it had not ended when the execution did, or began to undo: nobody waits for it any more


class StepRecord(msgspec.Struct, eq=False):
    """What is recorded of one step. `key` is its id, with `[i]` for each map around it."""

    key: str
    kind: str
    state: StepState
    order: int  # the sequence of the event that began it
    at: int
    fire_at: int | None = None  # of a timer that is pending
    ended_at: int | None = None
    result: Any = None
    error: str | None = None
    known: bool = True  # FAILED: that it did not happen
    not_before: int | None = None  # FAILED, and not known: who may still be at it has stopped by then
    idempotency_key: str | None = None
    input: Any = None
    signal: str | None = None  # waits: the name
    timed_out: bool = False
    child: str | None = None  # its workflow id
    items: list[Any] | None = None  # map
    cancel_sent: bool = False
    undoes: str | None = None  # compensations: the key of the step
    undone: bool = False  # steps: a compensation has succeeded since
    undos: int = 0  # steps: compensations begun
    late: int = 0  # steps: successes that were told after it was thought failed

    @property
    def may_have_happened(self) -> bool:
        """Whether there is something to undo."""
        return self.state is StepState.COMPLETED or (self.state is StepState.FAILED and not self.known)


class Execution:
    """What a history means."""

    __slots__ = (
        "buffered", "bytes", "cancel_requested", "cause", "compensating", "continues", "deadline",
        "deadline_passed", "definition", "error", "failed_step", "first", "ignored", "input", "input_bytes",
        "last_at", "last_seq", "late_signals", "open", "parent", "resolved", "result", "run_id", "signals",
        "started_at", "status", "steps", "stuck", "version", "waiting", "workflow_id",
    )  # fmt: skip

    def __init__(self) -> None:
        self.status = Status.RUNNING
        self.workflow_id = ""
        self.run_id = ""
        self.definition = ""
        self.version = 0
        self.input: Any = None
        self.input_bytes = 0  # of the event that brought it
        self.first = True  # no execution of this workflow id before
        self.parent: dict[str, Any] | None = None
        self.started_at = 0
        self.last_seq = 0
        self.last_at = 0
        self.bytes = 0
        self.steps: dict[str, StepRecord] = {}
        self.open: dict[str, StepRecord] = {}  # runs, children, waits and timers under way
        self.signals: dict[str, dict[str, Any]] = {}  # the last one that a wait took, by name
        self.buffered: dict[str, list[dict[str, Any]]] = {}  # those no wait took yet
        self.waiting: dict[str, list[StepRecord]] = {}  # waits that are open, by signal
        self.late_signals: list[str] = []  # ids of those that came after the timeout
        self.ignored: list[int] = []  # events that changed nothing: a timer behind its signal, ...
        self.result: Any = None
        self.error: str | None = None
        self.failed_step: str | None = None
        self.cancel_requested = False
        self.continues = False  # closed, and goes on in another execution: continued as new, or reset
        self.compensating = False
        self.cause: str | None = None  # of the compensation: failed | cancelled
        self.deadline: int | None = None
        self.deadline_passed = False
        self.stuck = False
        self.resolved: dict[str, Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can still change."""
        return self.status in OPEN

    def next_timer(self) -> int | None:
        """The earliest pending timer, epoch milliseconds."""
        times = [r.fire_at for r in self.open.values() if r.fire_at is not None]
        if self.deadline is not None and not self.deadline_passed:
            times.append(self.deadline)
        return min(times, default=None)

    def due_timers(self, now: int) -> list[str]:
        """Keys of the timers whose time has come, earliest first."""
        due = [(r.fire_at, r.order, r.key) for r in self.open.values() if r.fire_at is not None]
        if self.deadline is not None and not self.deadline_passed:
            due.append((self.deadline, 0, DEADLINE))
        return [key for at, _, key in sorted(due) if at <= now]

    def at_limit(self) -> bool:
        """Whether the history is so long that the execution must end."""
        return self.last_seq >= EVENT_LIMIT - RESERVE or self.bytes >= FULL_BYTES

    def near_limit(self) -> bool:
        """Whether people are to be warned."""
        return self.last_seq >= EVENT_LIMIT * WARNING_SHARE or self.bytes >= BYTE_LIMIT * WARNING_SHARE


def open_activities(execution: Execution) -> Iterator[StepRecord]:
    """Runs and children under way that are no compensations."""
    for record in execution.open.values():
        if record.undoes is None and record.kind in ("activity", "child"):
            yield record
