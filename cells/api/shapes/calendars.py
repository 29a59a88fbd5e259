"""Calendars and backfills."""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal

from pydantic import Field

from cells.api.shapes.base import ListShape, Shape


class CalendarSummary(Shape):
    """A calendar without its dates."""

    calendar_id: str
    name: str | None
    version: int = Field(description="Of its content; also the ETag.")
    count: int = Field(description="Dates it excludes.")
    first: date | None
    last: date | None
    weekdays: list[Literal["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]]
    pending: bool = Field(description="Jobs are still being brought to this version.")
    moved: int = Field(description="Jobs whose next occurrence changed with this version.")
    created_by: str
    created_at: datetime
    updated_at: datetime


class ExcludedDate(Shape):
    """A date on which nothing runs."""

    date: date
    name: str | None


class Calendar(CalendarSummary):
    """A calendar."""

    dates: list[ExcludedDate]


class CalendarPage(Shape):
    """One page of calendars."""

    items: list[CalendarSummary]
    next_cursor: str | None


class ExcludedShown(Shape):
    """An occurrence that a calendar excludes."""

    at: datetime
    local: str


class BackfillPlan(Shape):
    """What a backfill would do."""

    job_id: str
    from_: datetime = Field(alias="from")
    until: datetime
    occurrences: int = Field(description="Of the schedule in that stretch.")
    present: int = Field(description="Those that have a run already; it is left alone.")
    skipped_rows: int = Field(description="Rows of skipped occurrences, which runs replace.")
    to_run: int
    limit: int = Field(description="Occurrences that one backfill may have.")
    first: datetime | None
    last: datetime | None
    seconds: int = Field(description="How long it takes at least, at this pace.")
    max_per_second: int


class Backfill(Shape):
    """A stretch of a job's past being run."""

    backfill_id: str
    job_id: str
    from_: datetime = Field(alias="from")
    until: datetime
    state: Literal["RUNNING", "STOPPED", "DONE"]
    total: int
    processed: int
    started: int = Field(description="Runs it made.")
    replaced: int = Field(description="Of those: in place of a skipped occurrence.")
    present: int = Field(description="Occurrences that had a run already.")
    cursor: datetime = Field(description="Occurrences before it are dealt with.")
    reason: str | None = Field(description="Why it ended before its time.")
    max_per_second: int
    created_by: str
    created_at: datetime
    finished_at: datetime | None
    stopped_by: str | None


class BackfillPage(ListShape):
    """One page of backfills."""

    items: list[Backfill]
    next_cursor: str | None
