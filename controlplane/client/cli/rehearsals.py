"""`clockhouse rehearse`, `clockhouse rehearsals`: a region is cut off on purpose, with an operator's key."""

from __future__ import annotations

import functools
import time
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Limit, Yes
from controlplane.client.cli.session import BAD_OUTCOME, Session, Wrong, command, documents
from controlplane.client.cli.wording import moment
from controlplane.client.rehearsal_calls import Rehearsal, RehearsalPlan, RehearsalReport

app = typer.Typer(no_args_is_help=True, help="Rehearsals of a lost region, with an operator's key.")

Id = Annotated[str, typer.Argument(metavar="REHEARSAL", help="Its id: reh_…")]
#: Between two looks (seconds).
_LOOK_SECONDS = 1.0


def rehearse(
    session: Session,
    region: Annotated[str, typer.Argument(metavar="REGION", help="The region that is cut off.")],
    cells: Annotated[
        list[str] | None, typer.Option("--cell", help="That cell; may be repeated. Left out: all it owns.")
    ] = None,
    seconds: Annotated[int, typer.Option(min=45, max=900, help="How long; it ends by itself.")] = 120,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow it, and show its report.")] = True,
    yes: Yes = False,
    reason: Annotated[str | None, typer.Option(help="Goes into the audit log.")] = None,
) -> None:
    """Cut a region off, see who takes its cells over, and count what became of every run. Asks first.

    Tenants work on meanwhile: their runs start late until another region owns the cell, and some may be
    called twice under one key. The cut ends by itself, whatever happens to whoever began it.
    """
    plan = session.client.rehearsals.plan(region, cells=cells or ())
    if not session.as_json:
        session.err.print(_plan_table(plan))
    if plan.refusal is not None:
        raise Wrong(plan.refusal)
    tenants = sum(cell.tenants for cell in plan.cells)
    session.confirm(
        f"Cut {region} off from {len(plan.cells)} cells with {tenants:,} tenants for {seconds} s?", yes=yes
    )
    made = session.client.rehearsals.start(
        region, cells=[cell.cell for cell in plan.cells], seconds=seconds, reason=reason
    )
    if not wait:
        session.answer(made.raw, functools.partial(_card, made))
        return
    said = ""
    while not made.over:
        time.sleep(_LOOK_SECONDS)
        made = session.client.rehearsals.get(made.rehearsal_id)
        line = f"{made.state}: {made.why}"
        if line != said and not session.as_json:
            session.say(line)
            said = line
    if made.state != "DONE":
        session.answer(made.raw, functools.partial(_card, made))
        raise typer.Exit(BAD_OUTCOME)
    report = session.client.rehearsals.report(made.rehearsal_id)
    session.answer(report.raw, functools.partial(_report, report))


@command(app, "list")
def list_(
    session: Session,
    region: Annotated[str | None, typer.Option(help="Of that region.")] = None,
    limit: Limit = 50,
) -> None:
    """List rehearsals, the newest first."""
    found = session.take(session.client.rehearsals.list(region=region), limit)
    session.answer(documents(found), lambda: _table(session, found))


@command(app, "get")
def get(session: Session, rehearsal: Id) -> None:
    """Show a rehearsal, and what it does now."""
    found = session.client.rehearsals.get(rehearsal)
    session.answer(found.raw, functools.partial(_card, found))


@command(app, "report")
def report(session: Session, rehearsal: Id) -> None:
    """Show what a rehearsal proved: due, run once, late, repeated with keys, refused, RPO and RTO."""
    found = session.client.rehearsals.report(rehearsal)
    session.answer(found.raw, functools.partial(_report, found))


def _plan_table(plan: RehearsalPlan) -> RenderableType:
    rows = tables.table("cell", "tenants", "standbys", "behind", "can take part")
    for cell in plan.cells:
        behind = "–" if cell.behind_bytes is None else f"{cell.behind_bytes:,} B"
        standbys = ", ".join(cell.standbys) or "none"
        rows.add_row(cell.cell, f"{cell.tenants:,}", standbys, behind, cell.refusal or "yes")
    return rows


def _table(session: Session, found: list[Rehearsal]) -> RenderableType:
    if not found:
        return "Nothing was rehearsed. `clockhouse rehearse REGION` cuts a region off for two minutes."
    rows = tables.table("rehearsal", "region", "state", "begun", "seconds", "what it does")
    for one in found:
        begun = moment(one.created_at, session.now) if one.created_at else "–"
        rows.add_row(one.rehearsal_id, one.region, tables.state(one.state), begun, str(one.seconds), one.why)
    return rows


def _card(found: Rehearsal) -> RenderableType:
    return tables.card(
        (
            ("rehearsal", found.rehearsal_id),
            ("region", found.region),
            ("state", tables.state(found.state)),
            ("what it does", found.why),
            ("seconds", found.seconds),
        )
    )


def _report(found: RehearsalReport) -> RenderableType:
    rows = tables.table(
        "cell", "owner", "due", "once", "late p50/p99/max", "repeated", "refused", "RPO", "RTO"
    )
    for line in found.cells:
        late = "/".join(_plain(line[f"late_{name}_ms"]) for name in ("p50", "p99", "max"))
        rows.add_row(
            line["cell"],
            line["owner_after"] or "–",
            _plain(line["due"]),
            _plain(line["run_once"]),
            f"{late} ms",
            _plain(line["repeated"]),
            _plain(line["refused_by_epoch"]),
            f"{_plain(line['rpo_seconds'])} s",
            f"{_plain(line['rto_owner_seconds'])} s",
        )
    keys = [one["run_id"] for line in found.cells for one in line["repeats"]]
    parts: list[RenderableType] = [rows]
    if keys:
        parts += ["", "Perhaps called twice, each under its one key:", *keys]
    return Group(*parts)


def _plain(value: Any) -> str:
    return "–" if value is None else f"{value:,}"
