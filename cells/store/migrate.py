"""Applies `migrations/*.sql` in order, each in a transaction of its own, once.

Files that were applied are immutable: a changed checksum stops the process, because what the
database holds would no longer be what the code says. A file that begins with `-- outside a
transaction` (an index built CONCURRENTLY) is applied statement by statement; it must bear being
applied again from its beginning.

A statement that waits for a table's lock keeps everybody behind it waiting, too. So no file waits for longer
than a moment: it steps back, lets the others go on, and is tried again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import errors

from cells.observability.logs import logger
from cells.ports import Terminal
from cells.store.queries import QUERIES

log = logger(__name__)

FOLDER = Path(__file__).parent / "migrations"
_OUTSIDE = b"-- outside a transaction\n"
_PAUSE_SECONDS = 0.05
#: Between two attempts at a file whose locks somebody holds.
_STEP_BACK_SECONDS = 1.0
#: Checksums of files that lead to the same schema on another way now: indexes built beside what they replace.
_SAME = {
    "0080_engine_looks.sql": "b69e5a3a5a79054beebb7d246c06b2a6bbdc1b7acc9218735272fd6cccbb3d48",
    "0081_turns_of_job_workflows.sql": "11f6d877f2294ce5129793c9562f940101aaf3b3afa4a6c25379477d186a7a76",
}


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
                _whole(connection, text, record)
            done.append(name)
    return done


def _whole(connection: psycopg.Connection[tuple[object, ...]], text: bytes, record: dict[str, str]) -> None:
    """Apply a file in one transaction, as soon as it gets its locks in a moment."""
    while True:
        try:
            with connection.transaction():
                connection.execute(QUERIES["migrations_patience"])
                connection.execute(text)
                connection.execute(QUERIES["migrations_record"], record)
            return
        except (errors.LockNotAvailable, errors.DeadlockDetected) as fault:
            log.warning("a migration waits for its locks", name=record["name"], fault=str(fault)[:200])
        time.sleep(_STEP_BACK_SECONDS)


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
        if name in applied and applied[name] not in (checksum, _SAME.get(name)):
            raise Terminal(f"migration {name} was changed after it had been applied")
    if unknown := applied.keys() - {name for name, _, _ in known}:
        raise Terminal(f"the database is newer than this code: {sorted(unknown)}")
    return [m for m in known if m[0] not in applied]
