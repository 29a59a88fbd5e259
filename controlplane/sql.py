"""Named SQL: `.sql` files of blocks that begin with `-- name: <name>`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_BLOCK = re.compile(r"^-- name: (\w+)[ \t]*\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)


@cache
def named_sql(path: Path) -> dict[str, str]:
    """The blocks of a file by name."""
    blocks = {name: text.strip().rstrip(";") for name, text in _BLOCK.findall(path.read_text())}
    if not blocks:
        raise ValueError(f"{path} has no named blocks")
    return blocks
