"""Named SQL: `.sql` files of blocks that begin with `-- name: <name>`."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"^-- name: (\w+)[ \t]*\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)


def named_sql(name: str) -> dict[str, str]:
    """The blocks of `sql/<name>.sql`."""
    return _blocks(Path(__file__).parent / "sql" / f"{name}.sql")


def migration_sql(migration: str) -> dict[str, str]:
    """The blocks of the file beside a migration. It is the migration's own, and never changes once that has
    run anywhere: databases that ran it and those that will would differ."""
    return _blocks(Path(migration).with_suffix(".sql"))


def _blocks(file: Path) -> dict[str, str]:
    return {block: body.strip().rstrip(";") for block, body in _BLOCK.findall(file.read_text())}
