"""Selections and operations."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue

from cells.api.shapes.base import ListShape, Shape, SpreadShape
from cells.api.shapes.runs import DeadLetter


class SampledJob(Shape):
    """A job of a selection, in short."""

    job_id: str
    name: str | None
    key: str | None
    status: Literal["SCHEDULED", "PAUSED", "CANCELLED", "COMPLETED"]
    target_id: str
    next_run_at: datetime | None


class Selection(SpreadShape):
    """Jobs that were chosen for a bulk change."""

    selection_id: str
    action: Literal["pause", "resume", "cancel"]
    filter: dict[str, JsonValue]
    count: int
    sample: list[SampledJob] = Field(description="The first ten.")
    hash: str = Field(description="Names exactly these jobs and this action; applying asks for it.")
    created_by: str
    created_at: datetime
    expires_at: datetime


class FailedItem(Shape):
    """A job that an operation could not change."""

    job_id: str
    reason: str


class Operation(Shape):
    """A bulk change under way, or its summary."""

    operation_id: str
    selection_id: str
    action: Literal["pause", "resume", "cancel"]
    state: Literal["RUNNING", "STOPPED", "DONE"]
    total: int
    processed: int
    done: int
    unchanged: int = Field(description="They were as wanted, or over, before their turn came.")
    failed: int
    reasons: dict[str, int] = Field(description="Why jobs failed, with counts.")
    failures: list[FailedItem] = Field(description="The first few.")
    max_per_second: int
    created_by: str
    created_at: datetime
    finished_at: datetime | None
    stopped_by: str | None


class OperationPage(ListShape):
    """A page of operations."""

    items: list[Operation]
    next_cursor: str | None


# --- dead letters ------------------------------------------------------------------------
class LetterSelection(SpreadShape):
    """Dead letters that were chosen: nothing has happened to them yet."""

    selection_id: str
    action: Literal["redrive", "purge"]
    filter: dict[str, JsonValue]
    count: int
    sample: list[DeadLetter] = Field(description="Those whose turn comes first, ten at most.")
    hash: str = Field(description="Names exactly these letters and this action.")
    created_by: str
    created_at: datetime
    expires_at: datetime


class FailedLetter(Shape):
    """A letter that could not be dealt with."""

    run_id: str
    reason: str


class Redrive(SpreadShape):
    """Dead letters being redriven (or purged), or the summary of that."""

    redrive_id: str
    selection_id: str
    action: Literal["redrive", "purge"]
    state: Literal["RUNNING", "STOPPED", "DONE"]
    stage: Literal["first", "ten", "rest"] | None = Field(
        description="`first` sends one letter of each fingerprint and waits for it, `ten` ten more of "
        "each, `rest` the others."
    )
    total: int
    processed: int
    done: int
    unchanged: int = Field(description="Somebody else had dealt with them before their turn came.")
    failed: int
    reasons: dict[str, int] = Field(description="Why letters failed, with counts.")
    failures: list[FailedLetter] = Field(description="The first few.")
    max_per_second: int
    filter: dict[str, JsonValue] | None = Field(description="What the letters were chosen by.")
    hash: str | None = Field(description="Of exactly these letters and this action.")
    sample: list[DeadLetter] | None = Field(None, description="The first ten; where one is read.")
    runs: dict[str, int] | None = Field(
        None, description="How the redriven runs stand, by state (of ten thousand); where one is read."
    )
    created_by: str
    created_at: datetime
    finished_at: datetime | None
    stopped_by: str | None
    stop_reason: str | None = Field(description="Why it stopped by itself.")


class RedrivePage(ListShape):
    """A page of redrives and purges."""

    items: list[Redrive]
    next_cursor: str | None


# --- events ------------------------------------------------------------------------------
class Event(Shape):
    """Something people should hear of."""

    event_id: str
    type: str = Field(
        description="job.created, job.edited, job.revived, job.paused, job.resumed, job.completed, "
        "job.cancelled, run.dead_lettered, run.redriven, target.created, target.edited, target.approved, "
        "target.pending, target.disabled, target.gone, target.deleted, target.secret_rotated, target.tested, "
        "operation.started, operation.stopped, operation.ended, quota.reached, budget.spent, "
        "region.returned; "
        "others may follow."
    )
    at: datetime
    subject: str = Field(description="The id of what it is about; of the first one where they are many.")
    actor: str | None = Field(description="Whose decision it was: `key:…`, `user:…`; null: nobody's.")
    data: dict[str, JsonValue]


class EventPage(ListShape):
    """Events, oldest first."""

    items: list[Event]
    next_cursor: str = Field(description="Where to go on, also if there is nothing yet.")
    more: bool = Field(description="Whether asking again at once is likely to find more.")
