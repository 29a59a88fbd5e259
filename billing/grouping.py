"""Usage, summed by what somebody asks for, in keyset pages."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from django.db import connection

from billing import watermarks
from billing.cells import JobCount, JobPage
from billing.cells import cells as installed_cells
from billing.months import start_of
from billing.sql import named_sql
from cells.contract import Metric
from cells.domain.ids import JOB, decode

_SQL = named_sql("usage")
#: Seconds that all cells together may take.
_PATIENCE_SECONDS = 20.0


class By(enum.StrEnum):
    """What usage is summed by."""

    DAY = "day"  # each day's metrics and region policies
    METRIC = "metric"  # each metric, over all days
    REGION_POLICY = "region_policy"  # each metric's region policies, over all days
    JOB = "job"  # each job's runs, over all days


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A sum. What it is not by is None."""

    day: date | None = None
    job_id: str | None = None
    metric: str
    region_policy: str | None
    quantity: int

    @property
    def place(self) -> tuple[str, ...]:
        """Its sort key, as texts."""
        if self.job_id is not None:
            return (self.job_id,)
        day = "" if self.day is None else self.day.isoformat()
        return (day, self.metric, self.region_policy or "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Jobs:
    """A page by job."""

    rows: list[Row]
    more: bool
    complete_until: datetime | None
    without_cells: tuple[str, ...]  # gone for good, with what they counted by job


def fits(by: By, place: Sequence[str]) -> bool:
    """Whether texts can be the sort key of a row."""
    if any("\0" in text for text in place):
        return False  # PostgreSQL keeps no NUL
    if by is By.JOB:
        return len(place) == 1 and decode(JOB, place[0]) is not None
    if len(place) != 3 or (by is By.DAY) != bool(place[0]):
        return False
    try:
        return not place[0] or date.fromisoformat(place[0]) is not None
    except ValueError:
        return False


def grouped(
    tenant_id: uuid.UUID, since: date, until: date, *, by: By, after: tuple[str, ...] | None, limit: int
) -> list[Row]:
    """At most `limit` sums of the days in [since, until), behind a place."""
    day, metric, policy = after or ("", "", "")
    parameters = {
        "tenant_id": tenant_id,
        "since": since,
        "until": until,
        "by_day": by is By.DAY,
        "by_policy": by is not By.METRIC,
        "after": after is not None,
        "day": day or None,
        "policy": policy,
        "metric": metric,
        "limit": limit,
    }
    with connection.cursor() as cursor:
        cursor.execute(_SQL["grouped"], parameters)
        return [
            Row(day=day, metric=metric, region_policy=policy, quantity=int(quantity))
            for day, metric, policy, quantity in cursor.fetchall()
        ]


def by_job(
    tenant_id: uuid.UUID, since: date, until: date, *, after: tuple[str, ...] | None, limit: int
) -> Jobs:
    """Runs that ended in the days in [since, until), by job, as every cell that the tenant lived on
    remembers them, but for those that are gone. Raises `CellAway` with those that did not answer."""
    stores = watermarks.stores_of([tenant_id], start_of(since), start_of(until)).get(tenant_id, ())
    known = installed_cells()
    there, lived_on = set(known.names()), {cell for cell, _ in stores}
    pages = list(
        known.usage_by_job(
            sorted(lived_on & there),
            tenant_id,
            since,
            until,
            after=after[0] if after else None,
            limit=limit + 1,
            patience=_PATIENCE_SECONDS,
        ).values()
    )
    counts, more = merge(pages, limit)
    rows = [
        Row(job_id=c.job_id, metric=Metric.JOB_RUNS.value, region_policy=c.region_policy, quantity=c.runs)
        for c in counts
    ]
    return Jobs(
        rows=rows,
        more=more,
        complete_until=min((p.complete_until for p in pages), default=None),
        without_cells=tuple(sorted(lived_on - there)),
    )


def merge(pages: Sequence[JobPage], limit: int) -> tuple[list[JobCount], bool]:
    """The first `limit` jobs of several cells' pages of up to `limit + 1`, and whether there are more. A
    job that lived on two cells is one. Pure."""
    found: dict[str, JobCount] = {}
    for page in pages:
        for job in page.jobs:
            before = found.get(job.job_id)
            runs = job.runs + (before.runs if before else 0)
            found[job.job_id] = JobCount(job_id=job.job_id, region_policy=job.region_policy, runs=runs)
    # Behind the end of a full page, that cell may know more of the same jobs.
    ends = [page.jobs[-1].job_id for page in pages if len(page.jobs) > limit]
    known = [found[job] for job in sorted(found) if not ends or job <= min(ends)]
    return known[:limit], len(known) > limit or len(found) > len(known[:limit])
