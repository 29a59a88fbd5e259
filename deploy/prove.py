"""`make prove` lists the proofs; `make prove NAME=x-y` runs tests/proofs/x_y.py.

A proof is a module with a docstring and `main() -> Mapping[str, object]`: what it found, with
`holds` among it. Standard output carries exactly one line of JSON, `{"proof": …, "holds": …, …}`;
all else, of the proof and of whatever it starts, goes to standard error. The exit status is 0
only where the proof holds.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from deploy.home import ROOT
from deploy.lock import whole_machine

PROOFS = ROOT / "tests" / "proofs"


def known(folder: Path = PROOFS) -> dict[str, str]:
    """Name and first docstring line of each proof."""
    found = {}
    for file in sorted(folder.glob("[a-z]*.py")):
        tree = ast.parse(file.read_text())
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            found[file.stem.replace("_", "-")] = (ast.get_docstring(tree) or "").split("\n")[0]
    return found


def prove(name: str) -> Mapping[str, object]:
    """Run one proof; what it found, or why it could not."""
    try:
        found = dict(importlib.import_module(f"tests.proofs.{name.replace('-', '_')}").main())
    except Exception as failure:  # noqa: BLE001
        # Whatever it is, the proof does not hold.
        traceback.print_exc()
        found = {"holds": False, "error": f"{type(failure).__name__}: {failure}"}
    return {"proof": name, **found, "holds": found.get("holds") is True}


def main(arguments: list[str]) -> int:
    """The command line."""
    proofs = known()
    if not arguments:
        print(
            "\n".join(f"  make prove NAME={name:24} {about}" for name, about in proofs.items()) or "none yet"
        )
        return 0
    name = arguments[0]
    if name not in proofs:
        print(f"There is no proof {name!r}. Known: {', '.join(proofs) or 'none yet'}.", file=sys.stderr)
        return 2
    # Kept aside below Python, so that not even a child of the proof can write to it.
    answer = os.dup(1)
    os.dup2(2, 1)
    with whole_machine(f"proof {name}"):
        found = prove(name)
    sys.stdout.flush()
    with os.fdopen(answer, "w") as line:
        line.write(json.dumps(found, default=str) + "\n")
    return 0 if found["holds"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
