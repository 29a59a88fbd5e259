"""The API's requests about calendars of excluded dates, and about backfills. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal

from controlplane.client.decoding import Document
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.specs import as_body
from controlplane.client.wire import Call, if_match, path, query, without_none

Weekday = Literal["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExcludedDate(Document):
    """A date on which nothing runs, and perhaps what it is."""

    date: date
    name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Calendar(Document):
    """Days on which schedules that refer to it do not run. Lists leave `dates` out. `pending`: jobs are
    still being brought to this version; `moved`: jobs whose next occurrence changed with it."""

    calendar_id: str
    name: str | None
    version: int
    count: int
    first: date | None
    last: date | None
    weekdays: Sequence[str] = ()
    pending: bool = False
    moved: int = 0
    dates: Sequence[ExcludedDate] = ()
    updated_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BackfillPlan(Document):
    """What a backfill would do: `to_run` of `occurrences` would run, `present` have a run already,
    `skipped_rows` records of skipped ones would be replaced. `seconds` is how long it takes at least."""

    job_id: str
    until: datetime
    occurrences: int
    present: int
    skipped_rows: int
    to_run: int
    limit: int
    first: datetime | None
    last: datetime | None
    seconds: int
    max_per_second: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Backfill(Document):
    """A stretch of a job's past being run: RUNNING, STOPPED or DONE."""

    backfill_id: str
    job_id: str
    until: datetime
    state: str
    total: int
    processed: int
    started: int
    replaced: int
    present: int
    reason: str | None
    created_at: datetime | None
    finished_at: datetime | None

    @property
    def over(self) -> bool:
        """Whether it starts nothing more."""
        return self.state != "RUNNING"


# --- calendars ---------------------------------------------------------------------------
def put_calendar(
    calendar_id: str,
    *,
    name: str | None = None,
    dates: Iterable[str | date | Mapping[str, Any]] = (),
    ics: str | None = None,
    weekdays: Sequence[Weekday] = (),
    version: int | str | None = None,
    only_create: bool = False,
) -> Call[Calendar]:
    """Make the calendar exclude exactly that: dates (alone, or as `{"date": …, "name": …}`), the whole days
    of an iCalendar text, days of the week. `version`: only if it still has that one; `only_create`: only
    if there is none. Else `PreconditionFailed`."""
    days = [item.isoformat() if isinstance(item, date) else item for item in dates]
    return Call(
        method="PUT",
        path=path("/v1/calendars/{id}", id=calendar_id),
        read=reads(Calendar),
        body=without_none(name=name, dates=days, ics=ics, weekdays=list(weekdays)),
        headers={**if_match(version), **({"If-None-Match": "*"} if only_create else {})},
        # What was done under a condition would be refused the second time: its own success broke it.
        repeatable=not only_create and version is None,
    )


def get_calendar(calendar_id: str) -> Call[Calendar]:
    """A calendar with its dates."""
    return Call(method="GET", path=path("/v1/calendars/{id}", id=calendar_id), read=reads(Calendar))


def list_calendars(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Calendar]]:
    """Calendars by id, without their dates."""
    return Call(
        method="GET",
        path="/v1/calendars",
        read=reads_page(Calendar),
        query=query(limit=limit, cursor=cursor),
    )


def delete_calendar(calendar_id: str, *, version: int | str | None = None) -> Call[None]:
    """Take a calendar away. Refused while a scheduled or paused job refers to it."""
    return Call(
        method="DELETE",
        path=path("/v1/calendars/{id}", id=calendar_id),
        read=lambda answer: None,
        headers=if_match(version),
    )


# --- backfills ---------------------------------------------------------------------------
def _backfill_body(
    since: datetime | str, until: datetime | str, max_per_second: int | None, *, dry_run: bool
) -> dict[str, Any]:
    found = {"from": as_body(since), "until": as_body(until), "max_per_second": max_per_second}
    return {**without_none(**found), "dry_run": dry_run}


def plan_backfill(
    job_id: str, *, since: datetime | str, until: datetime | str, max_per_second: int | None = None
) -> Call[BackfillPlan]:
    """What a backfill of a stretch would do, in numbers. Nothing is started."""
    return Call(
        method="POST",
        path=path("/v1/jobs/{id}", id=job_id) + ":backfill",
        read=reads(BackfillPlan),
        body=_backfill_body(since, until, max_per_second, dry_run=True),
        repeatable=True,
    )


def backfill_job(
    job_id: str,
    *,
    since: datetime | str,
    until: datetime | str,
    max_per_second: int | None = None,
    idempotency_key: str | None = None,
) -> Call[Backfill]:
    """Run the occurrences of a past stretch that did not run. None runs twice."""
    return Call(
        method="POST",
        path=path("/v1/jobs/{id}", id=job_id) + ":backfill",
        read=reads(Backfill),
        body=_backfill_body(since, until, max_per_second, dry_run=False),
        keyed=True,
        idempotency_key=idempotency_key,
    )


def list_backfills(
    *, job_id: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Backfill]]:
    """Backfills, the latest first."""
    return Call(
        method="GET",
        path="/v1/backfills",
        read=reads_page(Backfill),
        query=query(job_id=job_id, limit=limit, cursor=cursor),
    )


def get_backfill(backfill_id: str) -> Call[Backfill]:
    """A backfill, and how far it is."""
    return Call(method="GET", path=path("/v1/backfills/{id}", id=backfill_id), read=reads(Backfill))


def stop_backfill(backfill_id: str) -> Call[Backfill]:
    """Start nothing more; what was started runs."""
    return Call(
        method="POST",
        path=path("/v1/backfills/{id}", id=backfill_id) + ":stop",
        read=reads(Backfill),
        repeatable=True,
    )
