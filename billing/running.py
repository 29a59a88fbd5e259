"""How tasks run: behind a failure they go on with the rest, and one slow one runs at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from django.db import connection

from billing.refusals import Refused
from billing.sql import named_sql

_SQL = named_sql("running")
_LOG = structlog.get_logger(__name__)


@contextmanager
def going_on(what: str, **names: str) -> Iterator[None]:
    """Around one of many: whatever goes wrong with it is logged, and the others are not kept waiting.
    The next run of the task finds it as it was."""
    try:
        yield
    except Refused as refused:
        _LOG.error(f"could not {what}", error=str(refused), **names)
    except Exception:  # noqa: BLE001 - one that fails must not stop all behind it
        _LOG.exception(f"could not {what}", **names)


@contextmanager
def slow_alone() -> Iterator[bool]:
    """Around a task that asks others (Stripe, cells) and may wait for them: False if another such task
    runs now, here or in another process. So one of a worker's threads is left for everything else."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["take_slow"])
        (taken,) = cursor.fetchone()
    try:
        yield taken
    finally:
        if taken:
            with connection.cursor() as cursor:
                cursor.execute(_SQL["leave_slow"])
