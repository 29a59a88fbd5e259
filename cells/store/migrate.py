"""Applies `migrations/*.sql` in order, each in a transaction of its own, once.

Files that were applied are immutable: a changed checksum stops the process, because what the
database holds would no longer be what the code says.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import psycopg

from cells.ports import Terminal
from cells.store.queries import QUERIES

FOLDER = Path(__file__).parent / "migrations"


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
    with psycopg.connect(url) as connection:
        while True:
            with connection.transaction():
                connection.execute(QUERIES["migrations_lock"])
                connection.execute(QUERIES["migrations_table"])
                applied: dict[str, str] = dict(connection.execute(QUERIES["migrations_applied"]).fetchall())
                pending = _pending(applied)
                if not pending:
                    return done
                name, checksum, text = pending[0]
                connection.execute(text)
                connection.execute(QUERIES["migrations_record"], {"name": name, "checksum": checksum})
            done.append(name)


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
