"""Celery tasks of rehearsals. A message is a hint: the row and its lease say who drives."""

from __future__ import annotations

import uuid
from datetime import timedelta

import structlog
from celery import shared_task
from django.db.models import Q
from django.db.models.functions import Now
from kombu.exceptions import OperationalError

from controlplane.rehearsals.driving import drive
from controlplane.rehearsals.models import ENDED, Rehearsal

_LOG = structlog.get_logger(__name__)
#: One that should have been looked at again so long ago has lost its message or its driver.
_FORGOTTEN = timedelta(seconds=2)
#: A hint that waits for longer is none: beat gives the next.
_HINT_SECONDS = 5


@shared_task(name="controlplane.rehearsals.tasks.drive_rehearsal")
def drive_rehearsal(rehearsal_id: str) -> None:
    """Looks once, and does what its stage asks for."""
    pause = drive(uuid.UUID(rehearsal_id))
    if pause is not None:
        wake(uuid.UUID(rehearsal_id), after=pause)


@shared_task(name="controlplane.rehearsals.tasks.drive_rehearsals")
def drive_rehearsals() -> None:
    """Rehearsals that nobody drives: what a crash or a lost message left behind."""
    left = Rehearsal.objects.exclude(state__in=[s.value for s in ENDED]).filter(
        Q(leased_until=None) | Q(leased_until__lt=Now() - _FORGOTTEN)
    )
    for rehearsal_id in left.values_list("id", flat=True):
        wake(rehearsal_id)


def wake(rehearsal_id: uuid.UUID, *, after: float = 0.0) -> None:
    """Has a rehearsal driven in so many seconds, if the broker is there. Beat finds it otherwise."""
    try:
        drive_rehearsal.apply_async(
            [str(rehearsal_id)], countdown=after or None, expires=after + _HINT_SECONDS
        )
    except (OperationalError, OSError) as e:
        _LOG.warning("broker unreachable, left to beat", rehearsal_id=str(rehearsal_id), error=str(e))
