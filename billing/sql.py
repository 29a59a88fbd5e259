"""Named SQL: `.sql` files of blocks that begin with `-- name: <name>`."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"^-- name: (\w+)[ \t]*\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)


def named_sql(name: str) -> dict[str, str]:
    """The blocks of `sql/<name>.sql`."""
    text = (Path(__file__).parent / "sql" / f"{name}.sql").read_text()
    return {block: body.strip().rstrip(";") for block, body in _BLOCK.findall(text)}
