"""Workflows, their histories and definitions."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, JsonValue

from cells.api.shapes.base import ListShape, Shape


class PreviousWorkflow(Shape):
    """The workflow that had an id before."""

    run_id: str
    status: str
    closed_at: datetime | None


class WorkflowStarted(Shape):
    """A workflow that was started."""

    workflow_id: str
    run_id: str
    status: str
    home_region: str
    definition: str
    version: int
    previous: PreviousWorkflow | None = Field(
        description="Where this start began another workflow under an id that was used: which had it last."
    )


class Workflow(Shape):
    """An execution of a workflow."""

    workflow_id: str
    run_id: str
    status: str
    definition: str
    version: int
    region_policy: str
    home_region: str
    started_at: datetime
    closed_at: datetime | None
    error: str | None
    events: int = Field(description="In its history.")
    history_bytes: int
    next_timer_at: datetime | None
    parent: dict[str, JsonValue] | None
    result: JsonValue = Field(default=None, description="Of a closed one, if it is no longer than 4 KiB.")
    result_hidden: bool = False


class PendingTimer(Shape):
    """A timer that has not fired."""

    step: str
    fires_at: datetime


class WorkflowRead(Workflow):
    """An execution with where it stands."""

    current_steps: list[str]
    pending_timers: list[PendingTimer]
    takeovers: list[list[int]] = Field(description="Each epoch and the first sequence it wrote.")
    late_signals: list[str]


class WorkflowPage(ListShape):
    """A page of workflows."""

    items: list[Workflow]
    next_cursor: str | None
    looked_back_to: datetime | None = Field(
        default=None, description="Older workflows are not on this page, but on those behind it."
    )


class ReconciliationStep(Shape):
    """A step in question, with the keys under which the other side knows it and its compensation."""

    step: str
    idempotency_key: str | None
    child_workflow_id: str | None
    outcome: str = Field(description="COMPLETED, or UNKNOWN: nobody knows whether it happened.")
    error: str | None
    told_late: bool = Field(description="Its success was told after it was thought failed.")
    undone: bool
    compensation: str | None
    compensation_idempotency_key: str | None
    compensation_state: str | None
    compensation_error: str | None


class ReconciliationItem(Shape):
    """An execution whose history somebody should compare with the other side's books."""

    workflow_id: str
    run_id: str
    definition: str
    version: int
    status: str
    error: str | None
    started_at: datetime
    closed_at: datetime | None
    steps: list[ReconciliationStep]


class Reconciliation(ListShape):
    """A page of the report."""

    items: list[ReconciliationItem]
    next_cursor: str | None


class WorkflowEvent(Shape):
    """What was recorded."""

    seq: int
    epoch: int
    type: str
    at: datetime
    data: dict[str, JsonValue]


class WorkflowHistory(Shape):
    """Events in their order."""

    workflow_id: str
    run_id: str
    items: list[WorkflowEvent]
    next_after: int | None = Field(description="Ask again with this for the rest.")


class TimelineRun(Shape):
    """The run of an activity."""

    run_id: str
    state: str
    attempt: int
    waited_ms: int | None = Field(description="From when it was scheduled until somebody began.")
    ran_ms: int | None
    next_attempt_at: datetime | None


class TimelineStep(Shape):
    """A step, from its beginning to its end."""

    step: str
    kind: str
    state: str
    started_at: datetime
    ended_at: datetime | None
    idempotency_key: str | None
    compensates: str | None
    child_workflow_id: str | None
    fires_at: datetime | None
    error: str | None
    outcome_known: bool
    run: TimelineRun | None


class WorkflowTimeline(Shape):
    """Steps by their beginning."""

    workflow_id: str
    run_id: str
    steps: list[TimelineStep]


class SignalTaken(Shape):
    """What became of a signal."""

    workflow_id: str
    run_id: str
    signal_id: str
    status: str = Field(description="accepted, duplicate, or late: recorded, and changes nothing.")


class WorkflowDefinition(Shape):
    """A version of a definition."""

    name: str
    version: int
    created_by: str
    created_at: datetime


class WorkflowDefinitionRead(WorkflowDefinition):
    """A version with its text."""

    source: str
    steps: list[str]


class WorkflowDefinitionPage(Shape):
    """A page of versions."""

    items: list[WorkflowDefinition]
    next_cursor: str | None


class Compatible(Shape):
    """An execution that could go on under the candidate."""

    workflow_id: str
    run_id: str
    version: int


class Diverging(Shape):
    """The first event that the candidate would not have recorded."""

    seq: int
    type: str
    step: str | None
    expected: str


class Blocked(Compatible):
    """An execution that could not."""

    first_diverging_event: Diverging


class Undecided(Compatible):
    """An execution whose history is too long to be replayed in one request."""

    reason: str


class DefinitionChecked(Shape):
    """What a candidate would mean for open executions: a page of them."""

    name: str
    version: int
    open: int | None = Field(
        description="How many are open: on the first page, where the tenant has fewer than 100,000 open ones."
    )
    looked_at: int = Field(description="How many this page looked at.")
    compatible: list[Compatible]
    blocked: list[Blocked]
    undecided: list[Undecided]
    more: bool = Field(description="There may be more open executions than were looked at: `next_cursor`.")
    next_cursor: str | None
