"""The command line: `clockhouse`, or `python -m controlplane.client`."""

from __future__ import annotations

from typing import Annotated

import typer

from controlplane.client.cli import (
    accounts,
    billing,
    bulk,
    calendars,
    cells,
    definitions,
    exports,
    importing,
    jobs,
    making,
    money,
    moves,
    people,
    planning,
    queues,
    redrives,
    runs,
    targets,
    topology,
    workflows,
    working,
)
from controlplane.client.cli.session import EXIT_STATUSES, command
from controlplane.client.wire import user_agent

app = typer.Typer(
    name="clockhouse",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Clockhouse: every job at the right time. Address and key come from `clockhouse login`, or from"
    " CLOCKHOUSE_API_URL and CLOCKHOUSE_API_KEY.",
    epilog=EXIT_STATUSES,
)
app.add_typer(making.app, name="jobs")
bulk.register(jobs.app)
app.add_typer(bulk.operations, name="operations")
command(jobs.app, "backfill")(calendars.backfill)
app.add_typer(calendars.backfills, name="backfills")
app.add_typer(calendars.app, name="calendars")
app.add_typer(runs.app, name="runs")
app.add_typer(redrives.dlq, name="dlq")
app.add_typer(workflows.app, name="workflows")
app.add_typer(definitions.app, name="definitions")
app.add_typer(targets.app, name="targets")
app.add_typer(queues.app, name="queues")
app.add_typer(exports.app, name="exports")
app.add_typer(people.keys, name="keys")
app.add_typer(people.members, name="members")
app.add_typer(moves.app, name="moves")
app.add_typer(cells.app, name="cell")
app.add_typer(topology.topology, name="topology")
app.add_typer(topology.placements, name="placements")
command(app, "quotas")(topology.quotas)
command(app, "delays")(topology.delays)
app.add_typer(working.app, name="worker")
app.add_typer(importing.app, name="import")
app.add_typer(accounts.profile, name="profile")
command(app, "login")(accounts.login)
command(app, "usage")(money.usage)
command(app, "forecast")(billing.forecast)
app.add_typer(billing.budget, name="budget")
app.add_typer(billing.invoices, name="invoices")
app.add_typer(billing.price_books, name="price-books")
command(app, "stats")(runs.stats)
command(app, "herd")(bulk.herd)
command(app, "tenant")(money.tenant)
app.command("capacity")(planning.capacity)
app.command("build-or-buy")(planning.build_or_buy)


def _version(wanted: bool) -> None:
    if wanted:
        print(user_agent("cli"))
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """The console script."""
    app(prog_name="clockhouse")
