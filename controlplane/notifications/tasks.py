"""Celery tasks of notifications. Messages are hints: the rows say what is to be done."""

from __future__ import annotations

import time
from pathlib import Path

import structlog
from celery import shared_task
from django.db import connection
from kombu.exceptions import OperationalError

from controlplane.events.running import one_of
from controlplane.notifications import reading, sending, watching
from controlplane.sql import named_sql

_SQL = named_sql(Path(__file__).parent / "sql" / "notifications.sql")
_LOG = structlog.get_logger(__name__)
#: Messages and what came of them are kept so long (days).
KEPT_DAYS, _PAGE = 30, 5000
#: One call of `prune` goes on for so long (seconds); the next one finds the rest.
_PRUNING_SECONDS = 60
_SPACE = 0x4E4F5452  # of the one that reads
#: A hint that waits for longer is none: beat gives the next.
_HINT_SECONDS = 3


@shared_task(name="controlplane.notifications.tasks.send")
def send() -> int:
    """Sends messages that are due."""
    return sending.drain()


@shared_task(name="controlplane.notifications.tasks.read")
def read() -> int:
    """Reads what cells tell, unless another does; what some rule wants is sent at once."""
    with one_of(_SPACE) as mine:
        told = reading.read_feeds() if mine else 0
    if told:
        wake()
    return told


@shared_task(name="controlplane.notifications.tasks.watch")
def watch() -> int:
    """Looks for keys that are about to end and cells that are silent."""
    return watching.watch_keys() + watching.watch_cells()


@shared_task(name="controlplane.notifications.tasks.prune")
def prune() -> None:
    """Forgets messages that are over, after thirty days, and what is left of rules that were removed."""
    until = time.monotonic() + _PRUNING_SECONDS
    with connection.cursor() as cursor:
        for name in ("prune_deliveries", "prune_events"):
            cursor.execute(_SQL[name], {"days": KEPT_DAYS, "page": _PAGE})
        for name in ("prune_removed", "prune_removed_claims", "prune_removed_rules"):
            while time.monotonic() < until:
                cursor.execute(_SQL[name], {"page": _PAGE})
                if cursor.fetchone()[0] == 0:
                    break


def wake() -> None:
    """Has messages sent at once, if the broker is there. Beat sees to it otherwise."""
    try:
        send.apply_async(expires=_HINT_SECONDS)
    except (OperationalError, OSError) as e:
        _LOG.warning("broker unreachable, left to beat", error=str(e))
