"""What billing asks cells, through whoever knows where they are (`settings.BILLING_CELLS`)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol

from django.conf import settings
from django.utils.module_loading import import_string


class CellAway(Exception):
    """Some cells did not answer, or not as agreed: `cells` says which."""

    def __init__(self, why: str, *, cells: Sequence[str]) -> None:
        super().__init__(why)
        self.cells = tuple(cells)


@dataclass(frozen=True, kw_only=True, slots=True)
class DayCount:
    """What a cell remembers of a UTC day. Not `complete`: it still counts."""

    complete: bool
    runs: Mapping[tuple[uuid.UUID, str], int]  # (tenant, region policy): runs that ended


@dataclass(frozen=True, kw_only=True, slots=True)
class JobCount:
    """How many runs of a job ended on a cell in some days."""

    job_id: str
    region_policy: str
    runs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPage:
    """Jobs in order of their ids. `complete_until`: runs that ended before it are counted."""

    jobs: Sequence[JobCount]
    complete_until: datetime


class Cells(Protocol):
    """The cells of this installation. All calls raise `CellAway`."""

    def names(self) -> Sequence[str]:
        """Every cell that may have counted."""
        ...

    def runs_of_day(self, cell: str, day: date) -> DayCount: ...

    def usage_by_job(
        self,
        cells: Sequence[str],
        tenant_id: uuid.UUID,
        since: date,
        until: date,
        *,
        after: str | None,
        limit: int,
        patience: float,
    ) -> Mapping[str, JobPage]:
        """At most `limit` jobs of each cell behind `after`, over [since, until); all are asked at once, and
        have `patience` seconds."""
        ...


def cells() -> Cells:
    """As settings name them."""
    found: Cells = import_string(settings.BILLING_CELLS)()
    return found
