"""Celery tasks of evacuations. A message is a hint: the row and its lease say who drives."""

from __future__ import annotations

import uuid
from datetime import timedelta

import structlog
from celery import shared_task
from django.db.models import Q
from django.db.models.functions import Now
from kombu.exceptions import OperationalError

from controlplane.evacuations.driving import drive
from controlplane.evacuations.machine import ENDED_WHOLE
from controlplane.evacuations.models import Evacuation

_LOG = structlog.get_logger(__name__)
#: One that should have been looked at again so long ago has lost its message or its driver.
_FORGOTTEN = timedelta(seconds=2)
#: A hint that waits for longer is none: beat gives the next.
_HINT_SECONDS = 5


@shared_task(name="controlplane.evacuations.tasks.drive_evacuation")
def drive_evacuation(evacuation_id: str) -> None:
    """Takes every cell under way one step on."""
    pause = drive(uuid.UUID(evacuation_id))
    if pause is not None:
        wake(uuid.UUID(evacuation_id), after=pause)


@shared_task(name="controlplane.evacuations.tasks.drive_evacuations")
def drive_evacuations() -> None:
    """Evacuations that nobody drives: what a crash or a lost message left behind."""
    left = Evacuation.objects.exclude(state__in=[s.value for s in ENDED_WHOLE]).filter(
        Q(leased_until=None) | Q(leased_until__lt=Now() - _FORGOTTEN)
    )
    for evacuation_id in left.values_list("id", flat=True):
        wake(evacuation_id)


def wake(evacuation_id: uuid.UUID, *, after: float = 0.0) -> None:
    """Has an evacuation driven in so many seconds, if the broker is there. Beat finds it otherwise."""
    try:
        drive_evacuation.apply_async(
            [str(evacuation_id)], countdown=after or None, expires=after + _HINT_SECONDS
        )
    except (OperationalError, OSError) as e:
        _LOG.warning("broker unreachable, left to beat", evacuation_id=str(evacuation_id), error=str(e))
