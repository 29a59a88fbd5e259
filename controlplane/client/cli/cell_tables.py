"""How cells, drains and fills look in a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from controlplane.client.cell_documents import Cell, Relocation, RelocationPlan
from controlplane.client.cli import tables
from controlplane.client.cli.session import Session
from controlplane.client.cli.wording import moment


def cell_table(session: Session, cells: list[Cell]) -> RenderableType:
    """Cells in rows."""
    if not cells:
        return "No cells. `clockhouse cell add --help` says how the first one is made."
    made = tables.table("cell", "region", "kind", "state", "tenants", "promised", "capacity", "seen")
    for cell in cells:
        made.add_row(
            cell.name,
            cell.region,
            cell.kind.lower(),
            tables.state(cell.state),
            f"{cell.tenants:,}",
            f"{cell.promised_runs_per_second:,}/s",
            f"{cell.capacity_runs_per_second:,}/s",
            moment(cell.status_at, session.now) if cell.status_at else "never",
        )
    return made


def cell_card(session: Session, cell: Cell) -> RenderableType:
    """One cell, with its sites."""
    parts: list[RenderableType] = [
        tables.card(
            (
                ("cell", cell.name),
                ("region", cell.region),
                ("kind", cell.kind.lower()),
                ("state", tables.state(cell.state)),
                ("tenants", f"{cell.tenants:,}"),
                ("promised", f"{cell.promised_runs_per_second:,} runs/s"),
                ("capacity", f"{cell.capacity_runs_per_second:,} runs/s"),
                ("epoch", cell.ownership_epoch),
                ("does not answer", cell.status_error),
            )
        )
    ]
    if cell.sites:
        sites = tables.table("site", "address", "database", "valkey", "ready")
        for site in cell.sites:
            sites.add_row(
                site.region + (", primary" if site.primary else ""),
                site.url,
                site.database or "–",
                site.valkey or "–",
                moment(site.ready_at, session.now) if site.ready_at else "not yet",
            )
        parts += ["", sites]
    if cell.relocation is not None:
        parts += ["", relocation_card(session, cell.relocation)]
    return Group(*parts)


def relocation_card(session: Session, found: Relocation) -> RenderableType:
    """One drain or fill."""
    told = found.progress
    stuck = [(f"cannot move: {tenant}", why) for tenant, why in found.stuck.items()]
    return tables.card(
        (
            ("relocation", found.relocation_id),
            (found.kind.lower(), found.cell),
            ("state", tables.state(found.state)),
            ("now", found.why),
            ("moved", f"{told.get('moved', 0)} of {told.get('total', 0)}"),
            ("on their way", told.get("moving") or None),
            ("at once", found.at_once),
            ("begun", moment(found.created_at, session.now)),
            ("over", moment(found.finished_at, session.now) if found.finished_at else None),
            *stuck,
        )
    )


def relocation_table(session: Session, found: list[Relocation]) -> RenderableType:
    """Drains and fills in rows."""
    if not found:
        return "No cell was drained or filled. `clockhouse cell plan <cell>` shows what a drain would do."
    made = tables.table("relocation", "cell", "kind", "state", "moved", "begun", "now")
    for one in found:
        made.add_row(
            one.relocation_id,
            one.cell,
            one.kind.lower(),
            tables.state(one.state),
            f"{one.progress.get('moved', 0)} of {one.progress.get('total', 0)}",
            moment(one.created_at, session.now),
            one.why,
        )
    return made


def plan_table(plan: RelocationPlan) -> RenderableType:
    """Who would move where."""
    if not plan.steps:
        return "Nobody would move."
    made = tables.table("tenant", "runs/s", "from", "to", "why", right=("runs/s",))
    for step in plan.steps:
        made.add_row(
            step.tenant_id,
            f"{step.job_runs_per_second:,}",
            step.source,
            step.destination or Text("nowhere", style="bold red"),
            step.why,
        )
    return Group(made, plan.refusal or "")
