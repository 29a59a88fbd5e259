"""`clockhouse moves`: tenants between cells, for operators' keys; `--own` for a tenant's."""

from __future__ import annotations

import functools
import time
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from controlplane.client.cli import tables
from controlplane.client.cli.job_options import Limit, Yes
from controlplane.client.cli.session import BAD_OUTCOME, Session, Wrong, command, documents
from controlplane.client.cli.wording import moment
from controlplane.client.move_calls import Move, MovePlan

app = typer.Typer(no_args_is_help=True, help="Moves of tenants between cells, with an operator's key.")

TenantId = Annotated[str | None, typer.Argument(metavar="TENANT", help="Its id: tnt_… Not with --own.")]
MoveId = Annotated[str, typer.Argument(metavar="MOVE", help="Its id: mov_…")]
Cell = Annotated[str | None, typer.Option(help="Where to; left out, the cell with the most room.")]
Own = Annotated[bool, typer.Option("--own", help="The tenant that the key belongs to.")]
Reason = Annotated[str | None, typer.Option(help="Goes into the audit log.")]
#: Between two looks of `watch` (seconds).
_LOOK_SECONDS = 1.0


@command(app, "plan")
def plan(session: Session, whom: TenantId = None, cell: Cell = None, own: Own = False) -> None:
    """Show where a tenant would move, and what it means for both cells. Moves nobody."""
    found = _plan(session, whom, cell, own)
    session.answer(found.raw, lambda: _plan_card(found))


@command(app, "start")
def start(
    session: Session,
    whom: TenantId = None,
    cell: Cell = None,
    own: Own = False,
    yes: Yes = False,
    reason: Reason = None,
) -> None:
    """Move a tenant to another cell while it works. Shows the plan and asks first."""
    found = _plan(session, whom, cell, own)
    session.confirm(
        f"Move {found.tenant_id} from {found.source} to {found.destination}? It works on meanwhile; at the"
        " end it is held for a moment.",
        yes=yes,
    )
    if own:
        move = session.client.own_moves.start(cell=found.destination, reason=reason)
    else:
        move = session.client.moves.start(found.tenant_id, cell=found.destination, reason=reason)
    session.answer(move.raw, lambda: _card(session, move))


@command(app, "list")
def list_(
    session: Session,
    whom: TenantId = None,
    cell: Annotated[str | None, typer.Option(help="From or to that cell.")] = None,
    state: Annotated[str | None, typer.Option(help="COPY, DONE, …")] = None,
    own: Own = False,
    limit: Limit = 50,
) -> None:
    """List moves, the newest first."""
    if own:
        moves = session.take(session.client.own_moves.list(), limit)
    else:
        moves = session.take(session.client.moves.list(tenant_id=whom, cell=cell, state=state), limit)
    session.answer(documents(moves), lambda: _table(session, moves))


@command(app, "get")
def get(session: Session, move: MoveId, own: Own = False) -> None:
    """Show a move with its steps, how far it is, and what it waits for."""
    found = _get(session, move, own)
    session.answer(found.raw, functools.partial(_card, session, found))


@command(app, "watch")
def watch(session: Session, move: MoveId, own: Own = False) -> None:
    """Follow a move until the tenant is handed over and the move is over. Status 1 if it was given up."""
    said = ""
    while True:
        found = _get(session, move, own)
        line = f"{found.state}: {found.why}"
        if line != said and not session.as_json:
            session.say(line)
            said = line
        if found.over:
            session.answer(found.raw, functools.partial(_card, session, found))
            if found.state != "DONE":
                raise typer.Exit(BAD_OUTCOME)
            return
        time.sleep(_LOOK_SECONDS)


@command(app, "abort")
def abort(session: Session, move: MoveId, own: Own = False, yes: Yes = False, reason: Reason = None) -> None:
    """Have a move given up: the tenant stays where it is. Until HANDOFF only."""
    session.confirm(f"Give {move} up? What was copied is deleted; the tenant stays where it is.", yes=yes)
    client = session.client
    found = client.own_moves.abort(move, reason=reason) if own else client.moves.abort(move, reason=reason)
    session.answer(found.raw, functools.partial(_card, session, found))


def _plan(session: Session, tenant: str | None, cell: str | None, own: bool) -> MovePlan:
    if own:
        return session.client.own_moves.plan(cell=cell)
    if tenant is None:
        raise Wrong("name a tenant, or say --own")
    return session.client.moves.plan(tenant, cell=cell)


def _get(session: Session, move: str, own: bool) -> Move:
    return session.client.own_moves.get(move) if own else session.client.moves.get(move)


# --- how they look -----------------------------------------------------------------------
def _plan_card(plan: MovePlan) -> RenderableType:
    promised = [
        (f"promised on {cell}", f"{of['before']:,} runs/s now, {of['after']:,} afterwards")
        for cell, of in plan.promised.items()
    ]
    refused = [(f"not {cell}", why) for cell, why in plan.refused.items()]
    return tables.card(
        (
            ("tenant", plan.tenant_id),
            ("from", plan.source),
            ("to", plan.destination),
            ("why", plan.why),
            *promised,
            *refused,
        )
    )


def _table(session: Session, moves: list[Move]) -> RenderableType:
    if not moves:
        return "No moves. `clockhouse moves plan <tenant>` shows where one would go."
    made = tables.table("move", "tenant", "state", "from", "to", "begun", "pause")
    for move in moves:
        made.add_row(
            move.move_id,
            move.tenant_id,
            tables.state(move.state),
            move.source,
            move.destination,
            moment(move.created_at, session.now),
            "–" if move.pause_ms is None else f"{move.pause_ms} ms",
        )
    return made


def _card(session: Session, move: Move) -> RenderableType:
    rows, total = move.progress.get("rows"), move.progress.get("rows_total")
    parts: list[RenderableType] = [
        tables.card(
            (
                ("move", move.move_id),
                ("tenant", move.tenant_id),
                ("state", tables.state(move.state)),
                ("now", move.why),
                ("from", move.source),
                ("to", move.destination),
                ("why there", move.choice),
                ("rows", None if total is None else f"{rows:,} of {total:,}"),
                ("seconds left to copy", move.progress.get("eta_seconds")),
                ("bytes behind", move.progress.get("lag_bytes")),
                ("attempt", move.attempt),
                ("pause", None if move.pause_ms is None else f"{move.pause_ms} ms"),
                ("begun", moment(move.created_at, session.now)),
                ("over", moment(move.finished_at, session.now) if move.finished_at else None),
            )
        )
    ]
    if move.steps:
        steps = tables.table("step", "begun", "ended by", "why")
        for step in move.steps:
            steps.add_row(step.state, moment(step.began_at, session.now), step.event or "–", step.why or "")
        parts += ["", steps]
    return Group(*parts)
