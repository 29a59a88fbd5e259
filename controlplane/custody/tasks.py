"""Celery tasks of tenants' exports. Messages are hints: the rows say what is to be done."""

from __future__ import annotations

import time
import uuid

import structlog
from celery import shared_task
from kombu.exceptions import OperationalError

from controlplane.custody import exporting

_LOG = structlog.get_logger(__name__)
#: One task goes on taking exports for so long (seconds).
_PATIENCE = 60


@shared_task(name="controlplane.custody.tasks.run_export")
def run_export(export_id: str) -> bool:
    """Writes one export, if it waits."""
    return exporting.run(uuid.UUID(export_id))


@shared_task(name="controlplane.custody.tasks.run_exports")
def run_exports() -> int:
    """Writes exports that wait: what a lost message, a failure or a crash left behind."""
    until, done = time.monotonic() + _PATIENCE, 0
    for export_id in exporting.due():
        if time.monotonic() > until:
            break
        done += exporting.run(export_id)
    return done


@shared_task(name="controlplane.custody.tasks.expire_exports")
def expire_exports() -> int:
    """Removes what was kept long enough."""
    return exporting.expire()


def wake(export_id: uuid.UUID) -> None:
    """Has an export written at once, if the broker is there. Beat finds it otherwise."""
    try:
        run_export.delay(str(export_id))
    except (OperationalError, OSError) as e:
        _LOG.warning("broker unreachable, left to beat", export_id=str(export_id), error=str(e))
