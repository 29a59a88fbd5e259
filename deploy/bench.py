"""`make bench`: runs tests/bench/run.py while nothing else of ours uses the machine."""

from __future__ import annotations

import runpy
import sys

from deploy.home import ROOT
from deploy.lock import whole_machine

_RUNNER = ROOT / "tests" / "bench" / "run.py"


def main(arguments: list[str]) -> None:
    """The command line; arguments are the names of benches."""
    if not _RUNNER.exists():
        sys.exit("There are no benches yet.")
    with whole_machine("bench"):
        sys.argv = [str(_RUNNER), *arguments]
        runpy.run_path(str(_RUNNER), run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
