"""`make test`: lint and every group of tests, and where the time went.

Groups of a stage run beside each other: each of them waits more than it works. All groups run even when
one fails, so that a run tells everything that is wrong.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import IO

from deploy.home import ROOT

_CORES = os.cpu_count() or 1
_WORKERS = str(min(4, _CORES))
#: Component tests wait for engines and processes for a third of their time.
_WAITING_WORKERS = str(min(4, _CORES + 1))
#: In the order of collection: slow modules first.
_BY_MODULE = ("-n", _WAITING_WORKERS, "--dist", "loadscope", "--no-loadscope-reorder")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Commands that belong together."""

    name: str
    commands: Sequence[Sequence[str]]


def _python(*arguments: str) -> list[str]:
    return [sys.executable, "-m", *arguments]


def _pytest(folder: str, *more: str) -> list[str]:
    return _python("pytest", "-q", "--durations=8", *more, f"tests/{folder}")


#: One stage after the other. Chaos has the machine to itself.
STAGES = (
    (
        Group(
            name="lint",
            commands=(
                _python("ruff", "check", "."),
                _python("ruff", "format", "--check", "."),
                _python("mypy"),
            ),
        ),
        Group(name="architecture", commands=(_pytest("architecture"),)),
    ),
    (Group(name="unit", commands=(_pytest("unit", "-n", _WORKERS),)),),
    (
        Group(
            name="component",
            commands=(_pytest("component", *_BY_MODULE),),
        ),
    ),
    (
        Group(name="acceptance", commands=(_pytest("acceptance"),)),
        Group(name="browser", commands=(_pytest("browser"),)),
    ),
    (Group(name="chaos", commands=(_pytest("chaos"),)),),
)
_NAMES = [group.name for stage in STAGES for group in stage]
_NO_TESTS_COLLECTED = 5


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a group."""

    name: str
    well: bool
    seconds: float


def run(group: Group, output: IO[bytes] | None = None) -> Outcome:
    """Run a group; what it says goes to `output`, or to the terminal."""
    started = time.monotonic()
    # Where it is set, each of the hundreds of processes that tests start would compile all of the product.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    errors = None if output is None else subprocess.STDOUT
    statuses = [
        subprocess.run(command, cwd=ROOT, env=environment, stdout=output, stderr=errors).returncode
        for command in group.commands
        if not command[-1].startswith("tests/") or (ROOT / command[-1]).is_dir()
    ]
    well = all(status in (0, _NO_TESTS_COLLECTED) for status in statuses)
    return Outcome(name=group.name, well=well, seconds=time.monotonic() - started)


def run_stage(groups: Sequence[Group]) -> list[Outcome]:
    """Run groups beside each other. Each is shown as a whole when it has ended; one alone, as it goes."""
    if len(groups) == 1:
        _title(groups[0].name)
        return [run(groups[0])]
    outcomes = []
    with ThreadPoolExecutor(len(groups)) as threads, tempfile.TemporaryDirectory() as folder:
        files = {group.name: os.path.join(folder, group.name) for group in groups}

        def aside(group: Group) -> Outcome:
            with open(files[group.name], "wb") as output:
                return run(group, output)

        for done in as_completed([threads.submit(aside, group) for group in groups]):
            outcome = done.result()
            _title(outcome.name)
            with open(files[outcome.name], encoding="utf-8", errors="replace") as said:
                sys.stdout.writelines(said)
            sys.stdout.flush()
            outcomes.append(outcome)
    return outcomes


def _title(name: str) -> None:
    print(f"\n=== {name}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """The command line: the groups to run, all by default."""
    parser = argparse.ArgumentParser(prog="testing", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="group", help=", ".join(_NAMES))
    chosen = parser.parse_args(arguments).groups
    unknown = set(chosen) - set(_NAMES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    started = time.monotonic()
    outcomes: list[Outcome] = []
    for stage in STAGES:
        groups = [group for group in stage if not chosen or group.name in chosen]
        outcomes += run_stage(groups) if groups else []
    print("\n=== where the time went")
    for outcome in sorted(outcomes, key=lambda outcome: _NAMES.index(outcome.name)):
        print(f"  {outcome.name:14} {outcome.seconds:7.1f} s  {'ok' if outcome.well else 'FAILED'}")
    print(f"  {'all':14} {time.monotonic() - started:7.1f} s")
    return 0 if all(outcome.well for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
