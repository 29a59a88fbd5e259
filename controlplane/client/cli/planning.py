"""`clockhouse capacity`"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from controlplane.client import capacity as model


def capacity(
    runs_per_second: Annotated[float, typer.Option(help="Runs started a second, bursts apart.")],
    burst: Annotated[int, typer.Option(help="Runs due at one instant.")] = 0,
    window: Annotated[int, typer.Option(min=1, help="Seconds over which a burst is spread.")] = 300,
    runs_per_day: Annotated[int | None, typer.Option(help="In all; else the steady rate's.")] = None,
    long_jobs: Annotated[int, typer.Option(help="Running at once, with heartbeats.")] = 0,
    zones: Annotated[int, typer.Option(min=1, help="Losing one must leave enough.")] = 3,
    kept_days: Annotated[int, typer.Option(help="Days that runs stay in the database.")] = 30,
    core_hour: Annotated[
        float, typer.Option(help="Dollars for a core and an hour.")
    ] = model.Prices().core_hour,
    gb_month: Annotated[
        float, typer.Option(help="Dollars for a gigabyte and a month.")
    ] = model.Prices().storage_gb_month,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """What cells need for a workload, from figures that were measured. Needs no address and no key."""
    work = model.Workload(
        background_per_second=runs_per_second,
        burst_runs=burst,
        window_seconds=window,
        runs_per_day=runs_per_day,
        long_jobs=long_jobs,
    )
    prices = model.Prices(core_hour=core_hour, storage_gb_month=gb_month)
    measured = model.Measured()
    needed = model.cells(work, measured, prices, zones=zones, kept_days=kept_days)
    figures = {
        "peak_runs_per_second": round(work.peak_per_second, 1),
        **{name: round(value, 2) for name, value in asdict(needed).items()},
        "cores": needed.cores,
        "prices_as_of": prices.as_of,
        "measured": measured.as_of,
    }
    if as_json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        shown = value if isinstance(value, str) else f"{value:,}"
        print(f"{name.replace('_', ' '):24} {shown}")
