"""`clockhouse capacity`, `clockhouse build-or-buy`"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Annotated, Any

import typer

from controlplane.client import capacity as model
from controlplane.client import regions

#: Above this nobody's plan lies, and figures would be told to digits that mean nothing.
_MOST = 10**12


def _amount(value: float | None) -> float | None:
    """A number that can be planned with."""
    if value is not None and not (math.isfinite(value) and 0 <= value <= _MOST):
        raise typer.BadParameter(f"{value:g} is no number from 0 to {_MOST:,}")
    return value


def _number(words: str) -> Any:
    """An option that is such a number."""
    return typer.Option(callback=_amount, help=words)


def _shares(text: str) -> tuple[float, ...]:
    """Shares of the load by region, however they are scaled."""
    try:
        loads = [float(part) for part in text.split(",")]
    except ValueError:
        loads = []
    if len(loads) < 2 or not all(0 < load < math.inf for load in loads):
        raise typer.BadParameter(
            "numbers above 0 of two regions or more, as in 60,25,15", param_hint="--shares"
        )
    return tuple(load / sum(loads) for load in loads)


def capacity(
    runs_per_second: Annotated[float, _number("Runs started a second, bursts apart.")],
    burst: Annotated[int, typer.Option(min=0, max=_MOST, help="Runs due at one instant.")] = 0,
    window: Annotated[
        int, typer.Option(min=1, max=_MOST, help="Seconds over which a burst is spread.")
    ] = 300,
    runs_per_day: Annotated[
        int | None, typer.Option(min=0, max=_MOST, help="In all; else the steady rate's.")
    ] = None,
    long_jobs: Annotated[int, typer.Option(min=0, max=_MOST, help="Running at once, with heartbeats.")] = 0,
    zones: Annotated[int, typer.Option(min=1, max=100, help="Losing one must leave enough.")] = 3,
    kept_days: Annotated[
        int, typer.Option(min=0, max=100_000, help="Days that runs stay in the database.")
    ] = 30,
    core_hour: Annotated[float, _number("Dollars for a core and an hour.")] = model.Prices().core_hour,
    gb_month: Annotated[
        float, _number("Dollars for a gigabyte and a month.")
    ] = model.Prices().storage_gb_month,
    shares: Annotated[
        str | None, typer.Option(help="Of the load, by region: 60,25,15. Adds what losing one takes.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Region policy of the runs, with --shares. HOME_ASYNC, if absent.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """What cells need for a workload, from figures that were measured. Needs no address and no key."""
    if policy is not None and policy not in regions.COPIES:
        raise typer.BadParameter(f"one of {', '.join(regions.COPIES)}", param_hint="--policy")
    if policy is not None and shares is None:
        raise typer.BadParameter("changes only what --shares adds: give both", param_hint="--policy")
    work = model.Workload(
        background_per_second=runs_per_second,
        burst_runs=burst,
        window_seconds=window,
        runs_per_day=runs_per_day,
        long_jobs=long_jobs,
    )
    at_peak = math.ceil(work.peak_per_second * model.DAY_SECONDS)
    if runs_per_day is not None and runs_per_day > at_peak:
        raise typer.BadParameter(
            f"{runs_per_day:,} is more than a whole day at the peak, {at_peak:,}", param_hint="--runs-per-day"
        )
    prices = model.Prices(core_hour=core_hour, storage_gb_month=gb_month)
    measured = model.Measured()
    needed = model.cells(work, measured, prices, zones=zones, kept_days=kept_days)
    figures: dict[str, Any] = {
        "peak_runs_per_second": round(work.peak_per_second, 1),
        **{name: round(value, 2) for name, value in asdict(needed).items()},
        "cores": needed.cores,
        "prices_as_of": prices.as_of,
        "measured": measured.as_of,
    }
    if shares is not None:
        figures["regions"] = _regions(work, measured, _shares(shares), policy or "HOME_ASYNC")
    if as_json:
        print(json.dumps(figures))
        return
    for name, value in _flat(figures).items():
        shown = value if isinstance(value, str) else f"{value:,}"
        print(f"{name.replace('_', ' '):24} {shown}")


def _regions(
    work: model.Workload, measured: model.Measured, shares: tuple[float, ...], policy: str
) -> dict[str, Any]:
    """The load over regions: what is kept ready, what a lost one takes, what replication costs."""
    average = work.runs_a_day / model.DAY_SECONDS
    lost = regions.failover(average * max(shares), survivors=max(1, len(shares) - 1))
    copies = regions.spread(average, policy, measured, regions.Transfer())
    return {
        "headroom": round(regions.headroom(shares), 4),
        "overdue_per_survivor": round(lost.overdue),
        "ahead_per_survivor": round(lost.ahead),
        "owner_seconds": lost.owner_seconds,
        "on_schedule_seconds": round(lost.on_schedule_seconds, 1),
        "bytes_replicated_per_run": round(copies.bytes_replicated_per_run),
        "replication_month": round(copies.month, 2),
    }


def build_or_buy(
    runs_month: Annotated[float, _number("Job runs a month.")],
    steps_month: Annotated[float, _number("Workflow steps a month.")] = 0.0,
    run_million: Annotated[float, _number("Dollars that a million runs cost here.")] = 4.47,
    step_million: Annotated[float, _number("Dollars that a million steps cost here.")] = 9.0,
    team_month: Annotated[float, _number("Dollars a month for those who run it.")] = 0.0,
    scheduler_million: Annotated[
        float, _number("EventBridge Scheduler: dollars a million invocations.")
    ] = regions.Offers().scheduler_million,
    transitions_million: Annotated[
        float,
        _number("Step Functions Standard: dollars a million state transitions."),
    ] = regions.Offers().transitions_million,
    as_of: Annotated[str, typer.Option(help="Of the prices given.")] = regions.Offers().as_of,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """What your volumes would cost elsewhere, at list prices, and here. Needs no address and no key."""
    choices = regions.build_or_buy(
        runs_month=runs_month,
        steps_month=steps_month,
        run_million=run_million,
        step_million=step_million,
        team_month=team_month,
        offers=regions.Offers(
            as_of=as_of, scheduler_million=scheduler_million, transitions_million=transitions_million
        ),
    )
    if as_json:
        print(json.dumps({"prices_as_of": as_of, "choices": [asdict(choice) for choice in choices]}))
        return
    for choice in choices:
        print(f"{choice.name:50} {choice.month:>14,.0f} dollars a month   {choice.what}")
    print(f"List prices as of {as_of}; give others with --scheduler-million and --transitions-million.")


def _flat(figures: dict[str, Any]) -> dict[str, Any]:
    """The same with what lies one level down."""
    below: dict[str, Any] = figures.get("regions", {})
    return {name: value for name, value in figures.items() if name != "regions"} | below
