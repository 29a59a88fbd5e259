"""`clockhouse topology`, `placements` for operators' keys; `quotas` and `delays` for a tenant's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from controlplane.client.cell_documents import (
    Choice,
    Delays,
    Owners,
    Placement,
    Quotas,
    Suggestions,
    Topology,
)
from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Limit, Yes
from controlplane.client.cli.session import BAD_OUTCOME, Session, Wrong, command, documents
from controlplane.client.cli.wording import moment

topology = typer.Typer(
    no_args_is_help=True, help="The whole map, and what should change on it, with an operator's key."
)
placements = typer.Typer(no_args_is_help=True, help="Where tenants live, and why, with an operator's key.")
_PARTS = {
    "window": "their own windows",
    "retries": "retries",
    "quota": "the tenant's own quotas",
    "workers": "its own workers",
    "own_queue": "its own other runs",
    "others": "other tenants of the cell",
    "target": "a free place at the target",
}


@command(topology, "show")
def show(session: Session) -> None:
    """Show regions, cells and sites with headroom, use and lag, and whether each region can lose a cell."""
    found = session.client.topology.get()
    session.answer(found.raw, lambda: _map(found))


@command(topology, "add-region")
def add_region(
    session: Session,
    name: Annotated[str, typer.Argument(help="Lower case letters, digits, hyphens.")],
    label: Annotated[str | None, typer.Option(help="What people call it.")] = None,
    reason: Annotated[str | None, typer.Option(help="Goes into the audit log.")] = None,
) -> None:
    """Make a region known, before its first cell is added."""
    found = session.client.topology.register_region(name, label=label, reason=reason)
    session.answer(
        found.raw, lambda: f"{found.name} is known. `clockhouse cell add --region {found.name}` makes a cell."
    )


@command(topology, "suggest")
def suggest(
    session: Session,
    begin: Annotated[
        str | None, typer.Option(help="Begin the suggested move of this tenant (id or slug).")
    ] = None,
    yes: Yes = False,
    reason: Annotated[str | None, typer.Option(help="Goes into the audit log.")] = None,
) -> None:
    """Show which tenants should move where, and why; with --begin one of them does."""
    found = session.client.topology.suggestions()
    if begin is None:
        session.answer(found.raw, lambda: _suggestions(found))
        return
    chosen = next((s for s in found.items if begin in (s.tenant_id, s.slug)), None)
    if chosen is None or chosen.destination is None:
        raise Wrong(f"no move of {begin} is suggested")
    session.confirm(f"Move {chosen.slug} from {chosen.source} to {chosen.destination}? {chosen.why}", yes=yes)
    move = session.client.moves.start(chosen.tenant_id, cell=chosen.destination, reason=reason or chosen.why)
    session.answer(move.raw, lambda: f"{chosen.slug} is on its way: `clockhouse moves watch {move.move_id}`")


@command(topology, "ownership")
def ownership(
    session: Session, cell: Annotated[str | None, typer.Option(help="This one alone.")] = None
) -> None:
    """Show who owns each cell by the ownership store. Status 1 where cells or records say something else."""
    found = session.client.topology.ownership(cell=cell)
    session.answer(found.raw, lambda: _owners(found))
    if not all(owned.agreed for owned in found.items):
        raise typer.Exit(BAD_OUTCOME)


@command(placements, "list")
def list_(
    session: Session,
    cell: Annotated[str | None, typer.Option(help="On this cell.")] = None,
    limit: Limit = 50,
) -> None:
    """List who lives where, with the reason."""
    found = session.take(session.client.topology.placements(cell=cell), limit)
    session.answer(documents(found), lambda: _placements(session, found))


@command(placements, "explain")
def explain(
    session: Session,
    region: Annotated[str, typer.Argument(help="Where the tenant would live.")],
    runs_per_second: Annotated[int, typer.Argument(min=1, help="What it would be promised.")],
    dedicated: Annotated[bool, typer.Option("--dedicated", help="On a cell of its own.")] = False,
) -> None:
    """Show which cell a tenant would get, and why. Places nobody."""
    found = session.client.topology.explain(region, runs_per_second, dedicated=dedicated or None)
    session.answer(found.raw, lambda: _choice(found))


def quotas(session: Session) -> None:
    """Show each quota, what is used of it now, and what happens over it."""
    found = session.client.tenant.quotas()
    session.answer(found.raw, lambda: _quotas(found))


def delays(
    session: Session,
    hours: Annotated[int, typer.Option(min=1, max=168, help="How far back to look.")] = 24,
) -> None:
    """Show what the tenant's runs waited for: its own doing, or its neighbours' on the cell."""
    found = session.client.tenant.delays(since=session.now - timedelta(hours=hours), until=session.now)
    session.answer(found.raw, lambda: _delays(found))


# --- how they look -----------------------------------------------------------------------
def _map(found: Topology) -> RenderableType:
    parts: list[RenderableType] = []
    for region in found.regions:
        spare = region.get("n_plus_one")
        bad = spare is None or not spare["holds"]
        parts += [
            Text(str(region["region"]), style="bold"),
            Text(str(region["sentence"]), style="red" if bad else ""),
        ]
        made = tables.table("cell", "state", "tenants", "promised", "room", "used", "late", "sites")
        for cell in region["cells"]:
            made.add_row(*_cell(cell))
        parts += [made, ""]
    return Group(*parts) if parts else "No regions. `clockhouse cell add --help` says how a cell is made."


def _cell(cell: Mapping[str, Any]) -> tuple[str | Text, ...]:
    used, lag = cell["used"], cell["lag_ms"]
    return (
        cell["name"],
        tables.state(cell["state"]),
        f"{cell['tenants']:,}",
        f"{cell['promised']:,} of {cell['may_promise']:,}/s",
        f"{cell['room']:,}/s",
        "not known" if used is None else f"{used:,.1f} of {cell['capacity']:,}/s",
        "not known" if lag is None else f"{lag:,} ms",
        ", ".join(site["region"] for site in cell["sites"]),
    )


def _suggestions(found: Suggestions) -> RenderableType:
    if not found.items:
        return "No cell is hot: nobody needs to move."
    made = tables.table("tenant", "used", "from", "to", "why")
    for one in found.items:
        made.add_row(
            one.slug, f"{one.used_runs_per_second:,.1f}/s", one.source, one.destination or "nowhere", one.why
        )
    return made


def _owners(found: Owners) -> RenderableType:
    made = tables.table("cell", "owner", "epoch", "recorded", "renewals", "promotions", "tenants", "agreed")
    said: list[str] = []
    for owned in found.items:
        made.add_row(
            owned.cell,
            owned.owner_region or "not known",
            str(owned.epoch or "–"),
            str(owned.recorded_epoch),
            str(owned.renewals if owned.renewals is not None else "–"),
            str(owned.promotions if owned.promotions is not None else "–"),
            f"{owned.tenants:,}",
            "yes" if owned.agreed else Text("no", style="bold red"),
        )
        said += [f"{owned.cell}: {line}" for line in (*owned.drift, *([owned.away] if owned.away else []))]
        said += [f"{owned.cell}: {each['tenant_id']}: {each['why']}" for each in owned.differences]
    return Group(made, *said)


def _placements(session: Session, found: list[Placement]) -> RenderableType:
    if not found:
        return "Nobody lives there."
    made = tables.table("tenant", "cell", "region", "epoch", "state", "since", "why")
    for one in found:
        made.add_row(
            one.tenant_id,
            one.cell,
            one.region,
            str(one.epoch),
            tables.state(one.state),
            moment(one.placed_at, session.now),
            one.why,
        )
    return made


def _choice(found: Choice) -> RenderableType:
    spare = found.n_plus_one
    return tables.card(
        (
            ("cell", found.cell or "none"),
            ("why", found.why),
            *((f"not {cell}", why) for cell, why in found.refused.items()),
            *((f"left on {cell}", f"{left:,} runs/s") for cell, left in found.left.items()),
            (
                "N+1",
                None
                if spare is None
                else f"{spare['promised']:,} on {spare['cell']}, room for {spare['room']:,}",
            ),
        )
    )


def _quotas(found: Quotas) -> RenderableType:
    made = tables.table(
        "quota", "used", "limit", "share", "over it", "measured", right=("used", "limit", "share")
    )
    for one in found.items:
        used = "not known" if one.used is None else f"{one.used:,.1f}".removesuffix(".0")
        made.add_row(
            one.name,
            used + (" or more" if one.at_least else ""),
            f"{one.quota:,}",
            "–" if one.share is None else f"{one.share:.0f} %",
            f"{one.over.lower()}: {one.over_means}",
            one.measured,
        )
    return Group(made, found.unknown or "")


def _delays(found: Delays) -> RenderableType:
    if not found.runs:
        return found.sentence
    made = tables.table(
        "waited for", "each run", "together", "share", right=("each run", "together", "share")
    )
    for part in sorted(found.parts, key=lambda p: -p.ms):
        made.add_row(
            _PARTS.get(part.part, part.part),
            "–" if part.mean_ms is None else f"{part.mean_ms:,.0f} ms",
            f"{part.ms:,} ms",
            "–" if part.share is None else f"{part.share:.1f} %",
        )
    more = "" if found.complete else "There were more runs; the newest were looked at."
    return Group(found.sentence, made, more)
