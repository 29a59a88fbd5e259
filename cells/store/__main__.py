"""`python -m cells.store migrate`: applies the migrations to CELL_DATABASE_URL."""

from __future__ import annotations

import os
import sys

from cells.store.migrate import migrate


def main(arguments: list[str]) -> int:
    """Exit status."""
    url = os.environ.get("CELL_DATABASE_URL", "")
    if arguments != ["migrate"] or not url:
        print("usage: CELL_DATABASE_URL=… python -m cells.store migrate", file=sys.stderr)
        return 2
    for name in migrate(url):
        print(f"applied {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
