"""Brings workspace schemas to the newest version: resumable, in small transactions.

Django's own per-schema migrate scans the whole catalogue four times per schema, which is
quadratic in the number of tenants. Here the SQL is known beforehand; a schema that is at the
target is never touched, and each other one costs its statements and nothing else. A schema
that fails keeps its version and its reason; the next run tries it again. Code must work with
schemas one version behind: expand, backfill, contract.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from django.db import DatabaseError, connection, transaction

from controlplane.sql import named_sql
from controlplane.workspace import template

_SQL = named_sql(Path(__file__).parent / "sql" / "pool.sql")
_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a run did."""

    migrated: int
    skipped: int  # another migrator has them
    failed: Sequence[str]


def _behind(batch: int) -> Iterator[str]:
    after = ""
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                _SQL["behind"], {"version": template.target_version(), "after": after, "limit": batch}
            )
            found = [row[0] for row in cursor.fetchall()]
        yield from found
        if len(found) < batch:
            return
        after = found[-1]


def migrate_schema(schema: str) -> bool:
    """Brings one schema to the newest version. False: another migrator holds it."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_SQL["lock_schema"], {"schema": schema})
        if not cursor.fetchone()[0]:
            return False
        cursor.execute(_SQL["version_of"], {"schema": schema})
        (version,) = cursor.fetchone()
        missing = template.steps_after(version)
        cursor.execute(_SQL["enter_schema"], {"path": schema})
        for step in missing:
            for statement in step.statements:
                cursor.execute(statement)
            cursor.execute(_SQL["note_migration"], {"name": step.version})
        cursor.execute(_SQL["enter_schema"], {"path": "public"})
        if missing:
            cursor.execute(_SQL["moved_on"], {"schema": schema, "version": missing[-1].version})
    return True


def migrate_all(batch: int = 100) -> Report:
    """Brings every schema to the newest version; goes on past those that fail."""
    migrated = skipped = 0
    failed: list[str] = []
    for schema in _behind(batch):
        try:
            if migrate_schema(schema):
                migrated += 1
            else:
                skipped += 1
        except DatabaseError as e:
            _LOG.error("workspace migration failed", schema=schema, error=str(e))
            failed.append(schema)
            with connection.cursor() as cursor:
                cursor.execute(_SQL["failed"], {"schema": schema, "error": str(e)[:500]})
    return Report(migrated=migrated, skipped=skipped, failed=failed)
