"""Celery tasks of the topology."""

from __future__ import annotations

import structlog
from celery import shared_task

from controlplane.events.running import one_of
from controlplane.topology.actions.provisioning import observe
from controlplane.topology.cell_client import CellUnreachable
from controlplane.topology.models import Cell, CellState
from controlplane.topology.push import settle_drift
from controlplane.topology.relocating import go_on, running

_LOG = structlog.get_logger(__name__)
#: Each of these is done by one at a time: silent cells make them slow, and must not take every thread.
_COMPARING, _OBSERVING = 0x44524946, 0x4F425356


@shared_task(name="controlplane.topology.tasks.check_drift")
def check_drift() -> None:
    """Compares every cell's tenants with what is recorded."""
    with one_of(_COMPARING) as mine:
        for cell in Cell.objects.exclude(state=CellState.RETIRED) if mine else ():
            try:
                settle_drift(cell)
            except CellUnreachable as e:
                _LOG.warning("cell not compared", cell=cell.name, error=str(e))


@shared_task(name="controlplane.topology.tasks.observe_cells")
def observe_cells() -> None:
    """Keeps what each cell says about itself, for the operators' pages."""
    with one_of(_OBSERVING) as mine:
        for cell in Cell.objects.exclude(state=CellState.RETIRED) if mine else ():
            observe(cell)


@shared_task(name="controlplane.topology.tasks.go_on_relocating")
def go_on_relocating() -> None:
    """Begins the next moves of every relocation that runs."""
    for relocation in running():
        go_on(relocation)
