"""The two cells of a move, spoken to."""

from __future__ import annotations

from typing import Any

from cells.contract import MoveOrder, MoveSide, MoveVerb
from controlplane.moves.models import TenantMove
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.models import Cell, Site

#: How long a cell may take for a verb (seconds), where not the usual five.
_SECONDS = {
    MoveVerb.PUBLISH: 60.0,
    MoveVerb.PREPARE: 600.0,
    MoveVerb.SUBSCRIBE: 60.0,
    MoveVerb.VERIFY: 900.0,
    MoveVerb.SEAL: 15.0,
    MoveVerb.TAIL: 30.0,
    MoveVerb.ACTIVATE: 30.0,
    MoveVerb.LOAD: 120.0,
    MoveVerb.RELEASE: 30.0,
    MoveVerb.ABORT: 600.0,
    MoveVerb.CLEAN: 60.0,
}


def ask(move: TenantMove, side: MoveSide, verb: MoveVerb, **more: Any) -> dict[str, Any]:
    """A verb's answer. `CellRefused` where the cell's state does not allow it, `CellUnreachable` where
    nothing is known."""
    source = side is MoveSide.SOURCE
    cell, peer = (move.source, move.destination) if source else (move.destination, move.source)
    order = MoveOrder(
        tenant_id=move.tenant.public_id,
        attempt=move.attempt,
        epoch=move.epoch,
        peer=peer.name,
        link=move.link,
        **more,
    )
    path = f"/internal/moves/{move.id}/{side.value}/{verb.value}"
    answer = call_cell(cell, "POST", path, order, timeout=_SECONDS.get(verb))
    if not isinstance(answer, dict):
        raise CellUnreachable(f"{cell.name}: no object in the answer to {verb.value}")
    return answer


def at_source(move: TenantMove, verb: MoveVerb, **more: Any) -> dict[str, Any]:
    """Asks the cell the tenant leaves."""
    return ask(move, MoveSide.SOURCE, verb, **more)


def at_destination(move: TenantMove, verb: MoveVerb, **more: Any) -> dict[str, Any]:
    """Asks the cell the tenant comes to."""
    return ask(move, MoveSide.DESTINATION, verb, **more)


def address_of(cell: Cell) -> str:
    """Where other cells reach its internal API."""
    return Site.objects.filter(cell=cell, primary=True).values_list("url", flat=True).first() or ""
