"""Cells as billing asks them (`billing.cells.Cells`). Settings name this class."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any
from urllib.parse import urlencode

from billing.cells import CellAway, DayCount, JobCount, JobPage
from controlplane.identity import TENANT, decode, encode
from controlplane.topology.cell_client import CellUnreachable, ask_cells, call_cell
from controlplane.topology.models import Cell, CellState

#: A day of a tenant with a million jobs is added up while we wait.
_PATIENCE_SECONDS = 20.0


class CellWitness:
    """The registered cells, over their internal APIs."""

    def names(self) -> Sequence[str]:
        """See `billing.cells.Cells`; so everywhere here."""
        rows = Cell.objects.exclude(state=CellState.RETIRED).order_by("name")
        return list(rows.values_list("name", flat=True))

    def runs_of_day(self, cell: str, day: date) -> DayCount:
        told = _ask(cell, f"/internal/usage/{day.isoformat()}")
        try:
            runs = {
                (_tenant(item["tenant_id"]), str(item["region_policy"])): int(item["job_runs"])
                for item in told["items"]
            }
            return DayCount(complete=bool(told["complete"]), runs=runs)
        except (KeyError, TypeError, ValueError) as e:
            raise CellAway(f"{cell} answered something else: {e!r}", cells=[cell]) from e

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
        asked = {"since": since.isoformat(), "until": until.isoformat(), "limit": str(limit)}
        if after is not None:
            asked["after"] = after
        path = f"/internal/tenants/{encode(TENANT, tenant_id)}/job-usage?{urlencode(asked)}"
        rows = list(Cell.objects.filter(pk__in=cells).order_by("name"))
        pages: dict[str, JobPage] = {}
        away = {name: f"{name} is not registered" for name in set(cells) - {row.name for row in rows}}
        for name, told in ask_cells(rows, path, timeout=patience).items():
            try:
                pages[name] = _page(name, told)
            except CellAway as fault:
                away[name] = str(fault)
        if away:
            raise CellAway("; ".join(away[name] for name in sorted(away)), cells=sorted(away))
        return pages


def _page(name: str, told: Any) -> JobPage:
    if isinstance(told, CellUnreachable):
        raise CellAway(str(told), cells=[name])
    try:
        jobs = [
            JobCount(
                job_id=str(item["job_id"]),
                region_policy=str(item["region_policy"]),
                runs=int(item["job_runs"]),
            )
            for item in told["items"]
        ]
        return JobPage(jobs=jobs, complete_until=datetime.fromisoformat(told["complete_until"]))
    except (KeyError, TypeError, ValueError) as e:
        raise CellAway(f"{name} answered something else: {e!r}", cells=[name]) from e


def _ask(name: str, path: str) -> Any:
    cell = Cell.objects.filter(pk=name).first()
    if cell is None:
        raise CellAway(f"{name} is not registered", cells=[name])
    try:
        return call_cell(cell, "GET", path, timeout=_PATIENCE_SECONDS)
    except CellUnreachable as e:
        raise CellAway(str(e), cells=[name]) from e


def _tenant(text: str) -> uuid.UUID:
    found = decode(TENANT, text)
    if found is None:
        raise ValueError(f"{text} is no tenant's id")
    return found
