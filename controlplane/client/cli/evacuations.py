"""`clockhouse evacuations`: regions that are left, and come back to, with an operator's key."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Limit, Yes
from controlplane.client.cli.session import BAD_OUTCOME, Session, Wrong, command, documents
from controlplane.client.cli.wording import moment
from controlplane.client.evacuation_calls import Evacuation, EvacuationPlan

app = typer.Typer(no_args_is_help=True, help="Regions that are left or come back to, with an operator's key.")

Region = Annotated[str, typer.Argument(metavar="REGION", help="Its name.")]
Id = Annotated[str, typer.Argument(metavar="EVACUATION", help="Its id: evc_…")]
Reason = Annotated[str | None, typer.Option(help="Goes into the audit log.")]
AtOnce = Annotated[int, typer.Option(min=1, max=20, help="Cells under way at the same time.")]
To = Annotated[
    list[str] | None,
    typer.Option("--to", metavar="CELL=REGION", help="Where a cell shall go; may be repeated."),
]
FailBack = Annotated[bool, typer.Option("--fail-back", help="Bring back cells that were made there.")]
Override = Annotated[
    bool,
    typer.Option("--override", help="Even where a region could then not lose a cell, or an owner is silent."),
]
#: Between two looks of `watch` (seconds).
_LOOK_SECONDS = 1.0


@command(app, "plan")
def plan(session: Session, region: Region, fail_back: FailBack = False) -> None:
    """Show which cells would go where, what regions would carry then, who would stay and why."""
    found = session.client.evacuations.plan(region, kind=_kind(fail_back))
    session.answer(found.raw, lambda: _plan_card(found))


@command(app, "start")
def start(
    session: Session,
    region: Region,
    fail_back: FailBack = False,
    to: To = None,
    at_once: AtOnce = 1,
    override: Override = False,
    yes: Yes = False,
    reason: Reason = None,
) -> None:
    """Hand a region's cells over to their other sites, one after the other. Shows the plan and asks first."""
    wanted = _wanted(to or [])
    found = session.client.evacuations.plan(region, kind=_kind(fail_back))
    if not session.as_json:
        session.err.print(_plan_card(found))
    going = [step for step in found.steps if step.target is not None]
    session.confirm(
        f"Hand {len(going)} cells with {sum(step.tenants for step in going):,} tenants over? Each waits for"
        f" some seconds; {len(found.steps) - len(going)} cells stay.",
        yes=yes,
    )
    made = session.client.evacuations.start(
        region, kind=_kind(fail_back), to=wanted or None, at_once=at_once, override=override, reason=reason
    )
    session.answer(made.raw, lambda: _card(session, made))


@command(app, "list")
def list_(
    session: Session,
    region: Annotated[str | None, typer.Option(help="Of that region.")] = None,
    state: Annotated[str | None, typer.Option(help="RUNNING, PAUSED, DONE, …")] = None,
    limit: Limit = 50,
) -> None:
    """List evacuations and failbacks, the newest first."""
    found = session.take(session.client.evacuations.list(region=region, state=state), limit)
    session.answer(documents(found), lambda: _table(session, found))


@command(app, "get")
def get(session: Session, evacuation: Id) -> None:
    """Show an evacuation with its cells, how far each is, and what it waits for."""
    found = session.client.evacuations.get(evacuation)
    session.answer(found.raw, functools.partial(_card, session, found))


@command(app, "watch")
def watch(session: Session, evacuation: Id) -> None:
    """Follow an evacuation until it is over or paused. Status 1 if it was given up or needs somebody."""
    said = ""
    while True:
        found = session.client.evacuations.get(evacuation)
        line = f"{found.state}: {found.why}"
        if line != said and not session.as_json:
            session.say(line)
            said = line
        if found.over or found.state == "PAUSED":
            session.answer(found.raw, functools.partial(_card, session, found))
            if found.state != "DONE":
                raise typer.Exit(BAD_OUTCOME)
            return
        time.sleep(_LOOK_SECONDS)


@command(app, "pause")
def pause(session: Session, evacuation: Id, reason: Reason = None) -> None:
    """Begin no further cell; a handover that was asked for gets to its end."""
    found = session.client.evacuations.pause(evacuation, reason=reason)
    session.answer(found.raw, functools.partial(_card, session, found))


@command(app, "resume")
def resume(
    session: Session,
    evacuation: Id,
    at_once: Annotated[int | None, typer.Option(min=1, max=20, help="Another pace.")] = None,
    reason: Reason = None,
) -> None:
    """Let it go on, perhaps at another pace."""
    found = session.client.evacuations.resume(evacuation, at_once=at_once, reason=reason)
    session.answer(found.raw, functools.partial(_card, session, found))


@command(app, "abort")
def abort(
    session: Session,
    evacuation: Id,
    hand_back: Annotated[bool, typer.Option("--hand-back", help="Bring back what was handed over.")] = False,
    yes: Yes = False,
    reason: Reason = None,
) -> None:
    """Give it up: cells that were not handed over stay where they are. Once more without --hand-back: what
    has not come back yet stays, too."""
    found = session.client.evacuations.get(evacuation)
    gone = sum(cell.state in ("WATCH", "DONE") for cell in found.cells)
    where = "come back" if hand_back else "stay at their new site"
    session.confirm(
        f"Give {evacuation} up? {gone} cells were handed over and {where}; the other"
        f" {len(found.cells) - gone} stay where they are.",
        yes=yes,
    )
    found = session.client.evacuations.abort(evacuation, hand_back=hand_back, reason=reason)
    session.answer(found.raw, functools.partial(_card, session, found))


def _kind(fail_back: bool) -> str:
    return "FAIL_BACK" if fail_back else "EVACUATE"


def _wanted(pairs: list[str]) -> dict[str, str]:
    wanted = {}
    for pair in pairs:
        cell, equals, region = pair.partition("=")
        if not (cell and equals and region):
            raise Wrong(f"--to {pair}: CELL=REGION")
        wanted[cell] = region
    return wanted


def _plan_card(found: EvacuationPlan) -> RenderableType:
    parts: list[RenderableType] = []
    rows = tables.table("cell", "from", "to", "tenants", "behind", "moves to stop", "why")
    for step in found.steps:
        behind = "–" if step.behind_bytes is None else f"{step.behind_bytes:,} B"
        target = step.target or ("needs moves" if step.nowhere else "stays")
        rows.add_row(
            step.cell, step.source, target, f"{step.tenants:,}", behind, f"{step.moves_to_stop:,}", step.why
        )
    parts.append(rows)
    parts += [load_line(load) for load in found.loads]
    if found.impossible is not None:
        parts.append(f"Nothing can be begun: {found.impossible}")
    elif found.refusal is not None:
        parts.append(f"Refused without --override: {found.refusal}")
    return Group(*parts)


def load_line(load: Mapping[str, Any]) -> str:
    """What a region carries before and after, in one line."""
    cells, promised = load["cells"], load["promised"]
    return (
        f"{load['region']}: {cells['before']} → {cells['after']} cells,"
        f" {promised['before']:,} → {promised['after']:,} runs/s promised"
    )


def _table(session: Session, found: list[Evacuation]) -> RenderableType:
    if not found:
        return "No region was evacuated. `clockhouse evacuations plan REGION` shows what that would be."
    rows = tables.table("evacuation", "region", "kind", "state", "begun", "what it does")
    for one in found:
        begun = moment(one.created_at, session.now) if one.created_at else "–"
        rows.add_row(one.evacuation_id, one.region, one.kind.lower(), tables.state(one.state), begun, one.why)
    return rows


def _card(session: Session, found: Evacuation) -> RenderableType:
    parts: list[RenderableType] = [
        tables.card(
            (
                ("evacuation", found.evacuation_id),
                ("region", found.region),
                ("kind", found.kind.lower()),
                ("state", tables.state(found.state)),
                ("what it does", found.why),
                ("cells at once", found.at_once),
            )
        )
    ]
    if found.cells:
        rows = tables.table("cell", "from", "to", "state", "what it does")
        for cell in found.cells:
            loss = f" ({cell.loss['says']})" if cell.loss else ""
            rows.add_row(cell.cell, cell.source, cell.target, tables.state(cell.state), cell.why + loss)
        parts += ["", rows]
    return Group(*parts)
