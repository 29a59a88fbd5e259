"""`clockhouse sites`: a cell's presence in each region, and what is asked of it, with an operator's key."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from controlplane.client.cli import tables
from controlplane.client.cli.evacuations import load_line
from controlplane.client.cli.job_options import Yes
from controlplane.client.cli.session import BAD_OUTCOME, Session, Wrong, command
from controlplane.client.evacuation_calls import SiteStatuses, WishPlan

app = typer.Typer(no_args_is_help=True, help="Sites of cells in several regions, with an operator's key.")

Cell = Annotated[str, typer.Argument(metavar="CELL", help="The cell's name.")]
Region = Annotated[str, typer.Argument(metavar="REGION", help="Where the site is.")]
Reason = Annotated[str | None, typer.Option(help="Goes into the audit log.")]
Why = Annotated[str, typer.Option("--reason", help="Why; it stays in the records.")]
Confirm = Annotated[
    str | None, typer.Option(metavar="“CELL REGION”", help="Both names, typed: something can be lost.")
]


@command(app, "list")
def list_(session: Session, cell: Cell) -> None:
    """Show a cell's sites: role, lease and lag, as their keepers tell of them now."""
    found = session.client.sites.list(cell)
    session.answer(found.raw, lambda: _table(found))


@command(app, "register")
def register(
    session: Session,
    cell: Cell,
    region: Region,
    keeper_url: Annotated[str, typer.Option(help="Where its keeper answers: http://host:port")],
    url: Annotated[str | None, typer.Option(help="Where the cell's API answers there.")] = None,
    reason: Reason = None,
) -> None:
    """Make a cell's presence in a region known, with its keeper's address."""
    made = session.client.sites.register(cell, region, keeper_url=keeper_url, url=url, reason=reason)
    session.answer(made.raw, lambda: f"{cell} has a site in {region}.")


@command(app, "hand-over")
def hand_over(session: Session, cell: Cell, region: Region, yes: Yes = False, reason: Reason = None) -> None:
    """Make another region the cell's owner, with nothing lost. Shows the plan and asks first."""
    plan = _planned(session, cell, region, "hand-over")
    session.confirm(f"{plan.says}. Go on?", yes=yes)
    _asked(session, plan, None, reason)


@command(app, "rejoin")
def rejoin(session: Session, cell: Cell, region: Region, reason: Why, confirm: Confirm = None) -> None:
    """Have a site that went on alone follow the owner again; what only it did leaves its database."""
    plan = _planned(session, cell, region, "rejoin")
    _asked(session, plan, _typed(session, plan, confirm), reason)


@command(app, "override")
def override(session: Session, cell: Cell, region: Region, reason: Why, confirm: Confirm = None) -> None:
    """Have a takeover go on without the votes that are missing, and lose what only those sites have."""
    plan = _planned(session, cell, region, "override")
    _asked(session, plan, _typed(session, plan, confirm), reason)


@command(app, "give-up")
def give_up(session: Session, cell: Cell, region: Region, reason: Why, confirm: Confirm = None) -> None:
    """Have STRICT open without what only this site has, which a takeover was decided without."""
    plan = _planned(session, cell, region, "give-up")
    _asked(session, plan, _typed(session, plan, confirm), reason)


def _planned(session: Session, cell: str, region: str, verb: str) -> WishPlan:
    plan = session.client.sites.plan(cell, region, verb)
    if not session.as_json:
        session.err.print(_plan_card(plan))
    if plan.refusal is not None:
        raise Wrong(plan.refusal)
    return plan


def _typed(session: Session, plan: WishPlan, given: str | None) -> str:
    if given is None and sys.stdin.isatty():
        session.err.print(f"Type “{plan.confirmation}” to go on: ", end="")
        given = input().strip()
    if given != plan.confirmation:
        session.say(f"Nothing was changed: --confirm “{plan.confirmation}” says that you mean it.")
        raise typer.Exit(BAD_OUTCOME)
    return given


def _asked(session: Session, plan: WishPlan, confirm: str | None, reason: str | None) -> None:
    answer = session.client.sites.ask(
        plan.cell, plan.region, plan.verb, epoch=plan.epoch, confirm=confirm, reason=reason
    )
    session.answer(answer.raw, lambda: answer.said)


def _plan_card(plan: WishPlan) -> RenderableType:
    behind = "not known" if plan.behind_bytes is None else f"{plan.behind_bytes:,} bytes"
    rows = (
        ("cell", plan.cell),
        ("owner", f"{plan.owner}, epoch {plan.epoch}"),
        ("tenants", f"{plan.tenants:,}"),
        ("behind", behind),
        ("what happens", plan.says),
        ("can be lost", plan.loses or "nothing"),
        ("cannot be done now", plan.refusal or ""),
    )
    return Group(tables.card(rows), *(load_line(load) for load in plan.loads))


def _table(found: SiteStatuses) -> RenderableType:
    if not found.items:
        return "It has no site. `clockhouse sites register --help` says how one is made known."
    rows = tables.table("site", "role", "lease", "epoch", "behind", "what it does")
    for site in found.items:
        behind = "–" if site.behind_bytes is None else f"{site.behind_bytes:,} B"
        role = "not known" if site.away else "owner" if site.owner else "standby"
        lease = "held" if site.owns else "–"
        rows.add_row(
            site.region, role, lease, str(site.epoch), behind, site.away or f"{site.act}: {site.why}"
        )
    return rows
