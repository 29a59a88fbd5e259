"""Applies `migrations/*.sql` in order, each in a transaction of its own, once.

Files that were applied are immutable: a changed checksum stops the process, because what the
database holds would no longer be what the code says. A file that begins with `-- outside a
transaction` (an index built CONCURRENTLY) is applied statement by statement; it must bear being
applied again from its beginning.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from cells.ports import Terminal
from cells.store.queries import QUERIES

FOLDER = Path(__file__).parent / "migrations"
_OUTSIDE = b"-- outside a transaction\n"
_PAUSE_SECONDS = 0.05


def migrations() -> list[tuple[str, str, bytes]]:
    """(name, checksum, text) of every file, in order."""
    return [
        (path.name, hashlib.sha256(text).hexdigest(), text)
        for path in sorted(FOLDER.glob("*.sql"))
        if (text := path.read_bytes())
    ]


def migrate(url: str) -> list[str]:
    """Bring a database up to date; the names of the files that were applied now.

    Safe to call from several processes at once. Raises `Terminal` when an applied file changed
    or the database is newer than this code.
    """
    done: list[str] = []
    with psycopg.connect(url, autocommit=True) as connection, _alone(connection):
        connection.execute(QUERIES["migrations_table"])
        applied: dict[str, str] = dict(connection.execute(QUERIES["migrations_applied"]).fetchall())
        for name, checksum, text in _pending(applied):
            record = {"name": name, "checksum": checksum}
            if text.startswith(_OUTSIDE):
                for statement in text.split(b";\n"):
                    connection.execute(statement)
                connection.execute(QUERIES["migrations_record"], record)
            else:
                with connection.transaction():
                    connection.execute(text)
                    connection.execute(QUERIES["migrations_record"], record)
            done.append(name)
    return done


@contextmanager
def _alone(connection: psycopg.Connection[tuple[object, ...]]) -> Iterator[None]:
    """One migrator at a time. The lock is asked for, not waited for: a concurrent index build waits
    for every statement that is older, and one that waits for the builder would be one of them."""
    while True:
        row = connection.execute(QUERIES["migrations_lock"]).fetchone()
        if row is not None and row[0]:
            break
        time.sleep(_PAUSE_SECONDS)
    try:
        yield
    finally:
        connection.execute(QUERIES["migrations_unlock"])


def is_migrated(applied: dict[str, str]) -> bool:
    """Whether what a database says it applied is what this code needs."""
    return not _pending(applied)


def _pending(applied: dict[str, str]) -> list[tuple[str, str, bytes]]:
    known = migrations()
    for name, checksum, _ in known:
        if name in applied and applied[name] != checksum:
            raise Terminal(f"migration {name} was changed after it had been applied")
    if unknown := applied.keys() - {name for name, _, _ in known}:
        raise Terminal(f"the database is newer than this code: {sorted(unknown)}")
    return [m for m in known if m[0] not in applied]
