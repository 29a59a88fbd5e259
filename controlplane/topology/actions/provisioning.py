"""A new cell on given engines: looked at, migrated, made known, waited for. The one way to make a cell.

Every step may be done again: a run that was broken off anywhere is gone on with by asking for the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from controlplane.actors import Actor
from controlplane.addresses import split
from controlplane.errors import Conflicting, Fault, Invalid, NotFound
from controlplane.ownership import OwnershipStore
from controlplane.topology.actions.cells import cell_faults, register_cell
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.engines import Look, look_at
from controlplane.topology.models import Cell, CellKind, CellState, Region, Site

#: A schema is made in seconds; an index over a big table takes longer.
_MIGRATION_SECONDS = 600
#: What the processes of a cell must do between them; `lake` is optional.
NEEDED_ROLES = ("api", "loader", "dispatcher", "executor", "engine", "reaper", "meter")
#: A cell's clock may be so far from ours (seconds).
_MOST_SKEW = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Added:
    """A cell as it stands after `add_cell`."""

    cell: Cell
    made: bool  # it was not known before
    applied: tuple[str, ...]  # migrations applied now
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Readiness:
    """Whether a cell works, and all that it still waits for."""

    ready: bool
    waits_for: tuple[str, ...]


def add_cell(
    *,
    name: str,
    region: str,
    url: str,
    key: bytes,
    database_url: str,
    valkey_url: str,
    kind: str = CellKind.SHARED,
    capacity_runs_per_second: int | None = None,
    movable: bool = True,
    store: OwnershipStore | None = None,
    actor: Actor,
    reason: str,
) -> Added:
    """Looks at the engines, brings the database's schema up to date, and makes the cell and its site known,
    CORDONED until somebody opens it. Refuses with every fault at once, and then nothing was changed.

    Asked again it changes what differs: a run that broke off goes on. No capacity: as in `register_cell`.
    `movable` false: engines that moves of
    tenants could not use are taken, with a warning.
    """
    faults = cell_faults(name, ",".join(split(url)), key, kind, capacity_runs_per_second)
    if not Region.objects.filter(pk=region).exists():
        faults.append(Fault(pointer="/region", detail="no such region"))
    known = Cell.objects.filter(pk=name).first()
    if known is not None and (known.region_id != region or known.kind != kind):
        faults.append(Fault(pointer="/name", detail=f"is a {known.kind} cell in {known.region_id}"))
    if known is not None and known.state == CellState.RETIRED:
        faults.append(Fault(pointer="/name", detail="is a retired cell; names are not used again"))
    look = look_at(cell=name, database_url=database_url, valkey_url=valkey_url)
    faults += _in_use(name, look, database_url) + look.faults + (look.immovable if movable else [])
    if faults:
        raise Invalid(faults)
    applied = () if look.inhabited else _migrate(database_url)
    cell = register_cell(
        name=name, region=region, url=url, key=key, kind=kind, state=CellState.CORDONED,
        capacity_runs_per_second=capacity_runs_per_second, database_url=database_url, valkey_url=valkey_url,
        store=store, actor=actor, reason=reason,
    )  # fmt: skip
    warnings = [*look.warnings, *([] if movable else (f.detail for f in look.immovable))]
    return Added(cell=cell, made=known is None, applied=applied, warnings=tuple(warnings))


def _in_use(name: str, look: Look, database_url: str) -> list[Fault]:
    """An empty database must not take the place of one that a cell has worked on."""
    worked = Site.objects.filter(cell=name, primary=True).exclude(ready_at=None).first()
    if worked is None or not look.empty:
        return []
    return [
        Fault(
            pointer="/database_url", detail=f"is empty, but {name} has worked on {worked.database or 'one'}"
        )
    ]


def _migrate(database_url: str) -> tuple[str, ...]:
    """Brings a cell's schema up to date, by the cell's own program; names of what was applied."""
    environment = {n: os.environ[n] for n in ("PATH", "HOME", "PYTHONPATH", "LANG") if n in os.environ}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cells.store", "migrate"],
            cwd=Path(settings.BASE_DIR),
            env={**environment, "CELL_DATABASE_URL": database_url},
            capture_output=True,
            text=True,
            timeout=_MIGRATION_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise Conflicting(f"the migrations took more than {_MIGRATION_SECONDS} s; ask again") from late
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason was told"])[-1]
        raise Invalid([Fault(pointer="/database_url", detail=f"could not be migrated: {last[:300]}")])
    return tuple(line.removeprefix("applied ") for line in done.stdout.splitlines())


def check_cell(*, name: str) -> Readiness:
    """Asks a cell now whether it works. What it says is kept, as when beat asks."""
    cell = Cell.objects.filter(pk=name).first()
    if cell is None:
        raise NotFound(f"no cell {name}")
    waits = observe(cell)
    return Readiness(ready=not waits, waits_for=tuple(waits))


def observe(cell: Cell) -> list[str]:
    """Asks a cell how it is, keeps that for people, and answers what it waits for. The first time that it
    works is remembered with its site."""
    try:
        status = call_cell(cell, "GET", "/internal/status")
    except CellUnreachable as away:
        Cell.objects.filter(pk=cell.pk).update(status_error=str(away)[:500])
        return [_advice(cell, away)]
    Cell.objects.filter(pk=cell.pk).update(status=status, status_at=Now(), status_error="")
    waits = waits_for(cell, status if isinstance(status, dict) else {})
    if not waits:
        Site.objects.filter(cell=cell, primary=True, ready_at=None).update(ready_at=timezone.now())
    return waits


def waits_for(cell: Cell, status: dict[str, Any]) -> list[str]:
    """What keeps a cell that answers from working, by what it says of itself."""
    waits = []
    if status.get("cell") != cell.name:
        waits.append(f"its address is that of {status.get('cell')}")
    if status.get("region") != cell.region_id:
        waits.append(f"it says that it is in {status.get('region')}, not in {cell.region_id}")
    live = [host for host in status.get("hosts") or () if host.get("live")]
    done = {role for host in live for role in host.get("roles") or ()}
    if missing := [role for role in NEEDED_ROLES if role not in done]:
        waits.append(f"none of its processes does {', '.join(missing)}")
    if status.get("queue") is None:
        waits.append("its Valkey does not answer")
    at = parse_datetime(str(status.get("at", "")))
    if at is not None and (skew := abs((timezone.now() - at).total_seconds())) > _MOST_SKEW:
        waits.append(f"its clock and ours are {skew:.1f} s apart")
    return waits


def _advice(cell: Cell, away: CellUnreachable) -> str:
    if " 401 " in str(away) or " 403 " in str(away):
        return f"it does not know the key it was registered with: CELL_KEYS must begin with {cell.name}:<key>"
    return f"it does not answer: {away}"
