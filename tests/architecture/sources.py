"""What the architecture tests look at: tracked files, Python sources, named SQL blocks."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PRODUCT = ("cells", "controlplane", "billing")
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def tracked() -> tuple[Path, ...]:
    """All files under version control that are there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return tuple(ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file())


def python(*packages: str) -> list[Path]:
    """Python files of some packages, Django's generated migrations apart."""
    return [
        file
        for file in tracked()
        if file.suffix == ".py"
        and relative(file).split("/")[0] in packages
        and "migrations" not in file.parts
    ]


def relative(path: Path) -> str:
    """A path as people write it."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    """A parsed file."""
    return ast.parse(path.read_text(), filename=str(path))


def strings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every string that is not a docstring; of an f-string, its fixed parts."""
    bare = {
        id(node.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.lineno, node.value


@dataclass(frozen=True, kw_only=True)
class Block:
    """One named SQL statement."""

    file: str
    name: str
    description: str
    sql: str


def blocks(*packages: str) -> list[Block]:
    """Every named block of the packages' .sql files, migrations apart."""
    found = []
    for file in tracked():
        if file.suffix != ".sql" or file.parent.name == "migrations":
            continue
        if relative(file).split("/")[0] not in packages:
            continue
        _, *rest = _NAME.split(file.read_text())
        for name, body in zip(rest[::2], rest[1::2], strict=True):
            lines = body.strip().splitlines()
            comments = [line for line in lines if line.startswith("--")]
            statement = "\n".join(line for line in lines if not line.lstrip().startswith("--"))
            found.append(
                Block(
                    file=relative(file),
                    name=name,
                    description=" ".join(line.removeprefix("--").strip() for line in comments),
                    sql=statement.strip(),
                )
            )
    return found
