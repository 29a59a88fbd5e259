"""What the API shows of workflows and their definitions, typed; see `documents.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.client.decoding import Document

#: Statuses in which an execution can still change.
OPEN = frozenset({"RUNNING", "COMPENSATING", "COMPENSATION_STUCK"})


@dataclass(frozen=True, kw_only=True, slots=True)
class PreviousWorkflow(Document):
    """The workflow that had an id before."""

    run_id: str
    status: str
    closed_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowStarted(Document):
    """A workflow that was started, or had been by the same start (`created` is False then)."""

    workflow_id: str
    run_id: str
    status: str
    home_region: str | None
    definition: str
    version: int
    created: bool = True
    previous: PreviousWorkflow | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingTimer(Document):
    """A timer that has not fired. The step `!deadline` is the one behind which a compensation is stuck."""

    step: str
    fires_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Workflow(Document):
    """An execution of a workflow. `result` is None where it is not shown (`result_hidden`), too. The last
    four are there of one that was read by its id."""

    workflow_id: str
    run_id: str
    status: str  # RUNNING, COMPENSATING, COMPENSATION_STUCK, COMPLETED, COMPENSATED, FAILED, …
    definition: str
    version: int
    region_policy: str | None
    home_region: str | None
    started_at: datetime
    closed_at: datetime | None
    error: str | None
    events: int = 0
    history_bytes: int = 0
    next_timer_at: datetime | None
    parent: Mapping[str, Any] | None
    result: Any = None
    result_hidden: bool = False
    current_steps: Sequence[str] = ()
    pending_timers: Sequence[PendingTimer] = ()
    late_signals: Sequence[str] = ()
    takeovers: Any = ()  # pairs: an epoch, and the first sequence it wrote

    @property
    def open(self) -> bool:
        """Whether it can still change."""
        return self.status in OPEN

    @property
    def completed(self) -> bool:
        """Whether all its steps were done."""
        return self.status == "COMPLETED"


@dataclass(frozen=True, kw_only=True, slots=True)
class StepInQuestion(Document):
    """A step to compare with the other side's books, with the keys under which those know it and what
    undoes it."""

    step: str
    idempotency_key: str | None
    child_workflow_id: str | None
    outcome: str  # COMPLETED, or UNKNOWN: nobody knows whether it happened
    error: str | None
    told_late: bool  # its success was told after it was thought failed
    undone: bool
    compensation: str | None
    compensation_idempotency_key: str | None
    compensation_state: str | None
    compensation_error: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reconciliation(Document):
    """An execution that is stuck in undoing, or undid what may not have happened."""

    workflow_id: str
    run_id: str
    definition: str
    version: int
    status: str
    error: str | None
    started_at: datetime
    closed_at: datetime | None
    steps: Sequence[StepInQuestion]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowEvent(Document):
    """What was recorded: the decision or the word from outside, and its data. Values of the tenant's own
    (inputs, results, payloads) are left out for keys that may not see payloads."""

    seq: int
    epoch: int
    type: str
    at: datetime
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRun(Document):
    """The run of an activity; milliseconds it waited for somebody, and was worked on."""

    run_id: str
    state: str
    attempt: int
    waited_ms: int | None
    ran_ms: int | None
    next_attempt_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineStep(Document):
    """A step from its beginning to its end. `compensates` names the step that a compensation undoes."""

    step: str
    kind: str  # activity, wait, timer, child, group, skipped, failed
    state: str  # OPEN, COMPLETED, FAILED, SKIPPED, GROUP
    started_at: datetime
    ended_at: datetime | None
    idempotency_key: str | None
    compensates: str | None
    child_workflow_id: str | None
    fires_at: datetime | None
    error: str | None
    outcome_known: bool = True
    run: StepRun | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline(Document):
    """Steps by their beginning."""

    workflow_id: str
    run_id: str
    steps: Sequence[TimelineStep] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalTaken(Document):
    """What became of a signal: `accepted`, `duplicate`, or `late` (recorded, and changes nothing)."""

    workflow_id: str
    run_id: str
    signal_id: str
    status: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowDefinition(Document):
    """A version of a definition. `source` and `steps` are there of one that was read by its name; `created`
    is False of a registration that found it there with the same text."""

    name: str
    version: int
    created_by: str | None
    created_at: datetime | None
    source: str | None = None
    steps: Sequence[str] = ()
    created: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Diverging(Document):
    """The first recorded event that a candidate would not have recorded, and what it would have."""

    seq: int
    type: str
    step: str | None
    expected: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedRun(Document):
    """An open execution that a candidate was replayed against; blocked ones name the first event that
    differs, undecided ones say why they were not replayed."""

    workflow_id: str
    run_id: str
    version: int
    first_diverging_event: Diverging | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DefinitionChecked(Document):
    """What a candidate would mean for the executions that are open: a page of them, or all (`whole`).
    `next_cursor`: there may be more. `open`: how many there are, on the first page, if they were counted."""

    name: str
    version: int
    open: int | None = None
    looked_at: int = 0
    compatible: Sequence[CheckedRun] = ()
    blocked: Sequence[CheckedRun] = ()
    undecided: Sequence[CheckedRun] = ()
    more: bool = False
    next_cursor: str | None = None
