"""Celery tasks of the outbox and the feed. They carry ids only."""

from __future__ import annotations

import time
from importlib import import_module

import structlog
from celery import shared_task
from django.conf import settings
from kombu.exceptions import OperationalError

from controlplane.events import feed, outbox
from controlplane.events.running import one_of

_LOG = structlog.get_logger(__name__)
#: Longest time one task drains; silent cells would hold it for a second an item.
_DRAIN_SECONDS = 20
#: Of those that drain, and how many may: they must not take every thread while cells are silent.
_SPACE, _PLACES = 0x4F555442, 2
#: A hint that waits for longer is none: beat looks again.
_HINT_SECONDS = 10


@shared_task(name="controlplane.events.tasks.run_outbox_item")
def run_outbox_item(item_id: int) -> None:
    """Tries one item now."""
    outbox.run_item(item_id)


@shared_task(name="controlplane.events.tasks.drain_outbox")
def drain_outbox() -> int:
    """Tries all that is due: what a lost message or a failure left behind."""
    until = time.monotonic() + _DRAIN_SECONDS
    done = 0
    with one_of(_SPACE, _PLACES) as mine:
        for item_id in outbox.due_items() if mine else ():
            if time.monotonic() > until:
                break
            done += outbox.run_item(item_id)
    return done


@shared_task(name="controlplane.events.tasks.prune")
def prune() -> None:
    """Forgets feed rows, stored answers and sessions nobody can ask for any more."""
    from controlplane.api.idempotency import purge

    feed.prune()
    purge()
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()


def wake(item_id: int) -> None:
    """Has an item tried at once, if the broker is there. Beat finds it otherwise."""
    try:
        run_outbox_item.apply_async([item_id], expires=_HINT_SECONDS)
    except (OperationalError, OSError) as e:
        _LOG.warning("broker unreachable, left to beat", item_id=item_id, error=str(e))
