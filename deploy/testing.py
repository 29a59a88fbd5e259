"""`make test`: lint and every group of tests, one after the other, and where the time went.

All groups run even when one fails, so that a run tells everything that is wrong.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from deploy.home import ROOT

_WORKERS = str(min(4, os.cpu_count() or 1))


@dataclass(frozen=True, kw_only=True)
class Group:
    """Commands that belong together."""

    name: str
    commands: Sequence[Sequence[str]]


def _python(*arguments: str) -> list[str]:
    return [sys.executable, "-m", *arguments]


def _pytest(folder: str, *more: str) -> list[str]:
    return _python("pytest", "-q", "--durations=8", *more, f"tests/{folder}")


GROUPS = (
    Group(
        name="lint",
        commands=(
            _python("ruff", "check", "."),
            _python("ruff", "format", "--check", "."),
            _python("mypy"),
        ),
    ),
    Group(name="architecture", commands=(_pytest("architecture"),)),
    Group(name="unit", commands=(_pytest("unit", "-n", _WORKERS),)),
    Group(name="component", commands=(_pytest("component", "-n", _WORKERS, "--dist", "loadscope"),)),
    Group(name="acceptance", commands=(_pytest("acceptance"),)),
    Group(name="chaos", commands=(_pytest("chaos"),)),
    Group(name="browser", commands=(_pytest("browser"),)),
)
_NO_TESTS_COLLECTED = 5


def run(group: Group) -> tuple[bool, float]:
    """Run a group; whether all of it went well, and its seconds."""
    print(f"\n=== {group.name}", flush=True)
    started = time.monotonic()
    statuses = [
        subprocess.run(command, cwd=ROOT).returncode
        for command in group.commands
        if not command[-1].startswith("tests/") or (ROOT / command[-1]).is_dir()
    ]
    well = all(status in (0, _NO_TESTS_COLLECTED) for status in statuses)
    return well, time.monotonic() - started


def main(arguments: list[str] | None = None) -> int:
    """The command line: the groups to run, all by default."""
    parser = argparse.ArgumentParser(prog="testing", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="group", help=", ".join(group.name for group in GROUPS))
    chosen = parser.parse_args(arguments).groups
    unknown = set(chosen) - {group.name for group in GROUPS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    results = [(group.name, *run(group)) for group in GROUPS if not chosen or group.name in chosen]
    print("\n=== where the time went")
    for name, well, seconds in results:
        print(f"  {name:14} {seconds:7.1f} s  {'ok' if well else 'FAILED'}")
    print(f"  {'all':14} {sum(seconds for _, _, seconds in results):7.1f} s")
    return 0 if all(well for _, well, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
