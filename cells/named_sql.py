"""Loads the named statements of a package's `sql/*.sql`.

A block is `-- name: claim_lock_jobs`, one or more lines of description that begin with `--`,
and one statement. Names are unique over all files.
"""

from __future__ import annotations

import re
from pathlib import Path

_HEAD = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def parse(text: str, origin: str) -> dict[str, bytes]:
    """Name → statement. Raises `ValueError` for a block without description or statement."""
    parts = _HEAD.split(text)
    found: dict[str, bytes] = {}
    for name, block in zip(parts[1::2], parts[2::2], strict=True):
        lines = block.strip().splitlines()
        if not lines or not lines[0].startswith("-- "):
            raise ValueError(f"{origin}: {name} has no description")
        statement = "\n".join(line for line in lines if not line.lstrip().startswith("--")).strip()
        if not statement or name in found:
            raise ValueError(f"{origin}: {name} is empty or defined twice")
        found[name] = statement.rstrip(";").encode()
    return found


def load(folder: Path) -> dict[str, bytes]:
    """All statements below a folder."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.glob("*.sql")):
        block = parse(path.read_text(), path.name)
        if twice := found.keys() & block.keys():
            raise ValueError(f"{path.name}: {sorted(twice)} defined twice")
        found |= block
    return found
