"""Runs benches: the default set, or those named. Prints each report and stores each result."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

from tests.bench.frame import Bench, measure, report, save, table


def known() -> dict[str, Bench]:
    """All benches by name: `BENCH` or `BENCHES` of every module in this folder."""
    found: dict[str, Bench] = {}
    for module_info in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module_info.name in ("run", "frame"):
            continue
        module = importlib.import_module(f"tests.bench.{module_info.name}")
        benches: tuple[Bench, ...] = getattr(module, "BENCHES", ()) or tuple(
            bench for bench in (getattr(module, "BENCH", None),) if bench
        )
        found.update({bench.name: bench for bench in benches})
    return found


def main(names: list[str]) -> int:
    benches = known()
    unknown = [name for name in names if name not in benches]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(sorted(benches))}", file=sys.stderr)
        return 2
    chosen = [benches[name] for name in names] or [bench for bench in benches.values() if bench.default]
    for bench in chosen:
        outcome = measure(bench)
        save(outcome)
        print(report(outcome), flush=True)
    print("\n" + table())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
