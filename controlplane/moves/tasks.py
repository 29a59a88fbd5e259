"""Celery tasks of moves. A message is a hint: the row and its lease say who drives."""

from __future__ import annotations

import uuid
from datetime import timedelta

import structlog
from celery import shared_task
from django.db.models import Q
from django.db.models.functions import Now
from kombu.exceptions import OperationalError

from controlplane.moves.driving import drive
from controlplane.moves.models import TenantMove
from controlplane.moves.planning import ended

_LOG = structlog.get_logger(__name__)
#: A move that should have been looked at again so long ago has lost its message or its driver.
_FORGOTTEN = timedelta(seconds=2)
#: A hint that waits for longer is none: beat gives the next.
_HINT_SECONDS = 5


@shared_task(name="controlplane.moves.tasks.drive_move")
def drive_move(move_id: str) -> None:
    """Drives one move as far as it goes now."""
    pause = drive(uuid.UUID(move_id))
    if pause is not None:
        wake(uuid.UUID(move_id), after=pause)


@shared_task(name="controlplane.moves.tasks.drive_moves")
def drive_moves() -> None:
    """Moves that nobody drives: what a crash or a lost message left behind."""
    left = TenantMove.objects.exclude(state__in=ended()).filter(
        Q(leased_until=None) | Q(leased_until__lt=Now() - _FORGOTTEN)
    )
    for move_id in left.values_list("id", flat=True):
        wake(move_id)


def wake(move_id: uuid.UUID, *, after: float = 0.0) -> None:
    """Has a move driven in so many seconds, if the broker is there. Beat finds it otherwise."""
    try:
        drive_move.apply_async([str(move_id)], countdown=after or None, expires=after + _HINT_SECONDS)
    except (OperationalError, OSError) as e:
        _LOG.warning("broker unreachable, left to beat", move_id=str(move_id), error=str(e))
