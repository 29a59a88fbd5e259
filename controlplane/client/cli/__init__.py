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
    erasures,
    evacuations,
    exports,
    importing,
    jobs,
    making,
    money,
    moves,
    notifications,
    people,
    planning,
    queues,
    redrives,
    rehearsals,
    returned,
    runs,
    sites,
    targets,
    tenant_exports,
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
_WORK, _FLOWS, _SEEN = "Jobs and what they call", "Workflows", "What is going on"
_MONEY, _OWN, _OPERATORS = "Usage and money", "Keys, people and this machine", "With an operator's key"

app.add_typer(making.app, name="jobs", rich_help_panel=_WORK)
bulk.register(jobs.app)
command(jobs.app, "backfill")(calendars.backfill)
app.add_typer(targets.app, name="targets", rich_help_panel=_WORK)
app.add_typer(working.app, name="worker", rich_help_panel=_WORK)
app.add_typer(queues.app, name="queues", rich_help_panel=_WORK)
app.add_typer(calendars.app, name="calendars", rich_help_panel=_WORK)
app.add_typer(calendars.backfills, name="backfills", rich_help_panel=_WORK)
app.add_typer(bulk.operations, name="operations", rich_help_panel=_WORK)
app.add_typer(importing.app, name="import", rich_help_panel=_WORK)
app.add_typer(workflows.app, name="workflows", rich_help_panel=_FLOWS)
app.add_typer(definitions.app, name="definitions", rich_help_panel=_FLOWS)
app.add_typer(runs.app, name="runs", rich_help_panel=_SEEN)
app.add_typer(redrives.dlq, name="dlq", rich_help_panel=_SEEN)
app.add_typer(notifications.app, name="notifications", rich_help_panel=_SEEN)
app.add_typer(returned.app, name="reconciliation", rich_help_panel=_SEEN)
command(app, "stats", rich_help_panel=_SEEN)(runs.stats)
command(app, "herd", rich_help_panel=_SEEN)(bulk.herd)
command(app, "delays", rich_help_panel=_SEEN)(topology.delays)
command(app, "quotas", rich_help_panel=_SEEN)(topology.quotas)
command(app, "usage", rich_help_panel=_MONEY)(money.usage)
command(app, "forecast", rich_help_panel=_MONEY)(billing.forecast)
app.add_typer(billing.budget, name="budget", rich_help_panel=_MONEY)
app.add_typer(billing.invoices, name="invoices", rich_help_panel=_MONEY)
app.add_typer(exports.app, name="exports", rich_help_panel=_MONEY)
app.command("capacity", rich_help_panel=_MONEY)(planning.capacity)
app.command("build-or-buy", rich_help_panel=_MONEY)(planning.build_or_buy)
command(app, "login", rich_help_panel=_OWN)(accounts.login)
app.add_typer(accounts.profile, name="profile", rich_help_panel=_OWN)
command(app, "tenant", rich_help_panel=_OWN)(money.tenant)
app.add_typer(tenant_exports.app, name="tenant-export", rich_help_panel=_OWN)
app.add_typer(erasures.app, name="erasure", rich_help_panel=_OWN)
app.add_typer(people.keys, name="keys", rich_help_panel=_OWN)
app.add_typer(people.members, name="members", rich_help_panel=_OWN)
app.add_typer(cells.app, name="cell", rich_help_panel=_OPERATORS)
app.add_typer(moves.app, name="moves", rich_help_panel=_OPERATORS)
app.add_typer(evacuations.app, name="evacuations", rich_help_panel=_OPERATORS)
command(app, "rehearse", rich_help_panel=_OPERATORS)(rehearsals.rehearse)
app.add_typer(rehearsals.app, name="rehearsals", rich_help_panel=_OPERATORS)
app.add_typer(sites.app, name="sites", rich_help_panel=_OPERATORS)
app.add_typer(topology.topology, name="topology", rich_help_panel=_OPERATORS)
app.add_typer(topology.placements, name="placements", rich_help_panel=_OPERATORS)
app.add_typer(billing.price_books, name="price-books", rich_help_panel=_OPERATORS)


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
