"""Runs outbox items: lease, handle, then done or try again later.

The row is the truth; a Celery message only makes it quick. Handlers take the subject and
raise to be retried. They must be idempotent: a lease can lapse while its holder still works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import structlog
from django.conf import settings
from django.db import connection
from django.utils.module_loading import import_string

from controlplane.sql import named_sql

_SQL = named_sql(Path(__file__).parent / "sql" / "outbox.sql")
_LOG = structlog.get_logger(__name__)
_LEASE_SECONDS = 30
_LONGEST_WAIT_SECONDS = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Leased:
    """An item this process may handle until the lease ends."""

    item_id: int
    topic: str
    subject: str
    generation: int
    attempts: int
    leased_until: datetime


def wait_after(attempts: int) -> int:
    """Seconds to wait after the n-th failure: 1, 2, 4, … up to five minutes."""
    return int(min(_LONGEST_WAIT_SECONDS, 2 ** min(attempts - 1, 9)))


def _handler(topic: str) -> Callable[[str], None]:
    handler: Callable[[str], None] = import_string(settings.OUTBOX_HANDLERS[topic])
    return handler


def due_items(limit: int = 500) -> list[int]:
    """Items that can be tried now."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["due"], {"limit": limit})
        return [row[0] for row in cursor.fetchall()]


def lease(item_id: int) -> Leased | None:
    """The item, if it is due and nobody else holds it."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["lease"], {"id": item_id, "lease_seconds": _LEASE_SECONDS})
        row = cursor.fetchone()
    if row is None:
        return None
    topic, subject, generation, attempts, leased_until = row
    return Leased(
        item_id=item_id,
        topic=topic,
        subject=subject,
        generation=generation,
        attempts=attempts,
        leased_until=leased_until,
    )


def run_item(item_id: int) -> bool:
    """Tries one item. True: done. False: not due, held by another, or to be tried again."""
    held = lease(item_id)
    if held is None:
        return False
    try:
        _handler(held.topic)(held.subject)
    except Exception as e:  # noqa: BLE001 - whatever went wrong, it is tried again and counted
        _LOG.warning("outbox item failed", topic=held.topic, subject=held.subject, error=str(e))
        with connection.cursor() as cursor:
            cursor.execute(
                _SQL["failed"],
                {
                    "id": item_id,
                    "generation": held.generation,
                    "leased_until": held.leased_until,
                    "error": f"{type(e).__name__}: {e}"[:500],
                    "delay_seconds": wait_after(held.attempts),
                },
            )
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            _SQL["done"],
            {"id": item_id, "generation": held.generation, "leased_until": held.leased_until},
        )
    return True
