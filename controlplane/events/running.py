"""How many do something at the same time: tasks that take long hold few of a worker's threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connection

from controlplane.sql import named_sql

_SQL = named_sql(Path(__file__).parent / "sql" / "running.sql")


@contextmanager
def one_of(space: int, places: int = 1) -> Iterator[bool]:
    """Around a task that takes long: False if as many others do it now, here or in other processes.
    `space` is the task's own number."""
    with connection.cursor() as cursor:
        for number in range(places):
            cursor.execute(_SQL["take"], {"space": space, "number": number})
            if cursor.fetchone()[0]:
                break
        else:
            yield False
            return
    try:
        yield True
    finally:
        with connection.cursor() as cursor:
            cursor.execute(_SQL["leave"], {"space": space, "number": number})
