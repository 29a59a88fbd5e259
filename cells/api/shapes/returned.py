"""What came back with a region that was lost."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from cells.api.shapes.base import Shape


class ReturnedTimes(Shape):
    """When a run did what, in the region that was lost."""

    due_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None


class ReturnedHere(Shape):
    """The same run, as the region has it that owns the cell now."""

    state: str
    fencing_token: int
    finished_at: datetime | None


class ReturnedEntry(Shape):
    """One thing that the region did, or somebody decided there."""

    region: str
    epoch: int = Field(description="Of the cell, when it was done.")
    at: datetime
    kind: str = Field(description="INTENT, CLAIMED, FINISHED, UNDER_WAY.")
    verb: str | None = Field(description="Of an intent: `job.create`, `job.edit`, …")
    thing: str = Field(description="What it was done to: job, workflow-run, target, workflow, …")
    id: str
    idempotency_key: str | None = Field(description="Of a run, as its target knows it.")
    region_policy: str | None
    state: str | None = Field(description="That the run ended in.")
    fencing_token: int | None = Field(description="Under which the run was claimed there.")
    times: ReturnedTimes | None
    outcome: str = Field(
        description="Of a run: REPEATED or NOT_REPEATED under its key. Of an intent: APPLIED, IMPORTED,"
        " ALREADY, CHANGED_SINCE, UNCONFIRMED, NOT_APPLIED, REFUSED, WAITING."
    )
    note: str | None
    settled_at: datetime | None
    here: ReturnedHere | None


class Returned(Shape):
    """A page of the report."""

    items: list[ReturnedEntry]
    next_cursor: str | None
