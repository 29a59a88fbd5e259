"""Celery tasks of tenants' exports and erasures. Messages are hints: the rows say what is to be done."""

from __future__ import annotations

import time
import uuid

import structlog
from celery import shared_task
from kombu.exceptions import OperationalError

from controlplane.custody import erasing, exporting
from controlplane.events.running import one_of

_LOG = structlog.get_logger(__name__)
#: One task goes on writing for so long, and one export for so long before it is another's turn (seconds).
_PATIENCE, _TURN = 60, 30
#: Of the one that writes, and of the one that erases.
_SPACE, _ERASING = 0x45585054, 0x45524153


@shared_task(name="controlplane.custody.tasks.run_export")
def run_export(export_id: str) -> bool:
    """Writes one export, if it waits and no other is being written. What is left is beat's to go on with."""
    with one_of(_SPACE) as mine:
        return mine and exporting.run(uuid.UUID(export_id), seconds=_TURN)


@shared_task(name="controlplane.custody.tasks.run_exports")
def run_exports() -> int:
    """Writes exports that wait, one at a time and each in its turn: what a lost message, a failure, a crash
    or the end of its last turn left behind."""
    until, done = time.monotonic() + _PATIENCE, 0
    with one_of(_SPACE) as mine:
        while mine and time.monotonic() < until:
            waiting = exporting.due(limit=1)
            if not waiting:
                break
            done += exporting.run(waiting[0], seconds=min(_TURN, until - time.monotonic()))
    return done


@shared_task(name="controlplane.custody.tasks.expire_exports")
def expire_exports() -> int:
    """Removes what was kept long enough."""
    return exporting.expire()


@shared_task(name="controlplane.custody.tasks.run_erasures")
def run_erasures() -> int:
    """Goes on with erasures, one process at a time; how many are done now."""
    until, done = time.monotonic() + _PATIENCE, 0
    with one_of(_ERASING) as mine:
        for erasure_id in erasing.due() if mine else ():
            if time.monotonic() > until:
                break
            done += erasing.run(erasure_id)
    return done


@shared_task(name="controlplane.custody.tasks.compare_erased")
def compare_erased() -> int:
    """Cells that came back know again who was erased."""
    with one_of(_ERASING) as mine:
        return erasing.compare_cells() if mine else 0


def wake(export_id: uuid.UUID) -> None:
    """Has an export written at once, if the broker is there. Beat finds it otherwise."""
    try:
        run_export.delay(str(export_id))
    except (OperationalError, OSError) as e:
        _LOG.warning("broker unreachable, left to beat", export_id=str(export_id), error=str(e))
