"""What is done for a cell in each of its states. Every step may be done again from its beginning: after a
crash of anything, whoever drives the evacuation next does just that.

A step returns the event that ends it, or None where it waits; `row.why` then says for what.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db.models import Q

from controlplane.actors import Actor, service
from controlplane.errors import Conflicting
from controlplane.evacuations.keepers import (
    KeeperRefused,
    KeeperUnreachable,
    SiteStatus,
    ask_keeper,
    status_of,
)
from controlplane.evacuations.looking import open_moves
from controlplane.evacuations.machine import Event, State, Whole
from controlplane.evacuations.models import EvacuatedCell, EvacuationKind
from controlplane.moves.actions import abort_move
from controlplane.moves.machine import ABORTABLE
from controlplane.ownership import CellOwnership, OwnershipStore
from controlplane.topology.actions.cells import set_cell_state
from controlplane.topology.actions.relocations import pause_relocation
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.models import Cell, CellState, Relocation, RelocationState, Site

#: With less than this to follow, the cell's claims are worth being held for (bytes).
CLOSE_BYTES = 1 << 20
#: How long a keeper may take to begin a handover, and to be through with it (seconds).
BEGIN_SECONDS, THROUGH_SECONDS = 15.0, 10.0
#: An owner that neither answers nor renews for so long is taken for dead (seconds).
SILENT_SECONDS = 10.0
#: After as many handovers that did not hold, an operator has to look.
MOST_LIFTS = 10


class NeedsSomebody(Exception):
    """It does not go on by itself; the message says why. The evacuation is paused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A cell as it is looked at once for a step."""

    row: CellOwnership
    owner: SiteStatus  # of the region that the ownership row names
    target: SiteStatus


def look(row: EvacuatedCell, store: OwnershipStore) -> Seen:
    """Asks the ownership store and the two keepers. `OwnershipUnavailable` where nothing is known."""
    owned = store.cell(row.cell_id)
    if owned is None:
        raise NeedsSomebody(f"the ownership store has no row of {row.cell_id}")
    sites = {site.region_id: site for site in Site.objects.filter(cell=row.cell_id)}
    found = {
        region: status_of(sites[region])
        if region in sites
        else SiteStatus(region=region, away="no site of it is known")
        for region in {owned.region, row.target}
    }
    owner = found[owned.region]
    if owned.region == row.source and not owner.away:
        row.facts.pop("silent", None)
        row.facts["last_seen"] = {
            "position": owner.position, "committed_at": owner.committed_at, "at": time.time()
        }  # fmt: skip
    return Seen(row=owned, owner=owner, target=found[row.target])


def settle(row: EvacuatedCell, store: OwnershipStore) -> Event | None:
    """The cell takes no new tenants, and no move needs its owner."""
    seen = look(row, store)
    if seen.row.region == row.target:
        return _gone(row, seen, f"{row.target} owns it already")
    if seen.row.region != row.source:
        return _gone(row, seen, f"{seen.row.region} owns it now")
    close(row)
    if _silent(row, seen):
        return Event.OWNER_SILENT
    moves = list(open_moves(row.cell_id).select_related("tenant"))
    row.progress["moves"] = len(moves)
    if not moves:
        return Event.SETTLED
    for move in moves:
        if move.at in ABORTABLE and move.abort_reason is None:
            try:
                abort_move(move_id=move.id, actor=actor(row), reason=f"{row.cell_id} goes to {row.target}")
            except Conflicting:
                continue  # it has just been handed over, or is over
    first = moves[0]
    return _wait(
        row, f"waits for {len(moves)} moves, {first.tenant.slug} ({first.state.lower()}: {first.why})"
    )


def catch_up(row: EvacuatedCell, store: OwnershipStore) -> Event | None:
    """Until the target has nearly all of the owner's log."""
    seen = look(row, store)
    if seen.row.region == row.target:  # a handover that came late, or a takeover between two looks
        if not seen.owner.owns:
            return _takes_up(row, seen)
        row.new_epoch = seen.row.epoch
        return Event.TAKEN
    if seen.row.region != row.source:
        return _gone(row, seen, f"{seen.row.region} owns it now")
    if _silent(row, seen):
        return Event.OWNER_SILENT
    if row.lifts >= MOST_LIFTS:
        row.lifts = 0
        raise NeedsSomebody(
            f"{MOST_LIFTS} handovers of {row.cell_id} did not hold: {row.target} is not there in time"
        )
    if seen.owner.away:
        return _wait(row, f"waits for the keeper in {row.source}: {seen.owner.away}")
    if seen.target.away:
        return _wait(row, f"waits for the keeper in {row.target}: {seen.target.away}")
    behind = None if seen.owner.cut or seen.target.cut else seen.owner.behind(row.target)
    row.progress["behind_bytes"] = behind
    if behind is None:
        return _wait(row, f"waits until {row.target} follows {row.source}")
    if not seen.owner.owns:
        return _wait(row, f"waits until {row.source} holds its lease: {seen.owner.why}")
    if behind > CLOSE_BYTES:
        return _wait(row, f"{row.target} has {behind:,} bytes of the log still to flush")
    row.facts.pop("asked", None)
    return Event.CAUGHT_UP


def hand_over(row: EvacuatedCell, store: OwnershipStore) -> Event | None:
    """The owner's keeper holds the cell's claims, waits until the target has flushed all, and names it the
    owner; else it works on where it is. It is asked once for each epoch, and begins soon or not at all."""
    seen = look(row, store)
    asked = row.facts.get("asked")
    if asked is None:
        return _ask(row, seen)
    if seen.row.region != row.source:
        return _arrives(row, seen, asked)
    if seen.row.epoch != row.epoch:
        return Event.LIFTED  # taken over and back, or claimed anew
    if time.time() <= asked["until"]:
        return _wait(row, f"{row.source} holds its claims until {row.target} has flushed all")
    if _silent(row, seen):
        return Event.OWNER_SILENT
    # Over, whether its keeper can be asked or not: from here the cell can be given up.
    row.why = (
        f"{row.source} owns it still, and its keeper does not answer: {seen.owner.away}"
        if seen.owner.away
        else f"{row.target} had not flushed all in time: {row.source} works on"
    )
    return Event.LIFTED


def _ask(row: EvacuatedCell, seen: Seen) -> Event | None:
    if seen.row.region != row.source:
        return _arrives(row, seen, {"at": time.time(), "until": time.time()})
    now = time.time()
    row.epoch = seen.row.epoch
    asked = {"at": now, "until": now + BEGIN_SECONDS + THROUGH_SECONDS}
    if not _may_ask(row, asked):
        row.refresh_from_db(fields=["facts"])
        return _wait(row, f"{row.source} is not asked: somebody else has, or nothing more is handed over")
    row.facts["asked"] = asked
    site = Site.objects.get(cell=row.cell_id, region=row.source)
    heard = f"{row.source} was asked to hand over to {row.target}"
    try:
        ask_keeper(
            site,
            row.cell,
            "hand-over",
            {"epoch": row.epoch, "to": row.target, "until": now + BEGIN_SECONDS},
        )
    except KeeperRefused as fault:
        row.why = str(fault)[:500]
        return Event.LIFTED
    except KeeperUnreachable as fault:
        heard = str(fault)  # it may have been understood
    return _wait(row, heard)


def _may_ask(row: EvacuatedCell, asked: dict[str, float]) -> bool:
    """Writes down that the handover is asked for, before it is: whoever finds the cell without that knows
    that it was not. Not where the evacuation was paused or given up since this driver looked."""
    goes_on = Q(evacuation__state=Whole.RUNNING.value) | Q(
        evacuation__state=Whole.ABORTING.value, evacuation__hand_back=True, returning=True
    )
    here = EvacuatedCell.objects.filter(goes_on, pk=row.pk, state=State.HAND_OVER.value)
    here = here.exclude(facts__has_key="asked")
    return bool(here.update(epoch=row.epoch, facts={**row.facts, "asked": asked}))


def _arrives(row: EvacuatedCell, seen: Seen, asked: dict[str, float]) -> Event | None:
    """The row names another region: it counts votes, promotes, and holds its first lease."""
    if not seen.owner.owns:
        return _takes_up(row, seen)
    row.new_epoch = seen.row.epoch
    row.facts["handed_over_ms"] = round((time.time() - asked["at"]) * 1000)
    if seen.row.region == row.target:
        return Event.HANDED_OVER
    row.target = seen.row.region  # the votes had it otherwise
    return Event.TAKEN


def take_over(row: EvacuatedCell, store: OwnershipStore) -> Event | None:
    """The owner is silent. Survivors do it by themselves; here it is watched, and what is missing is kept."""
    seen = look(row, store)
    if seen.row.region == row.source:
        if not seen.owner.away and seen.owner.owns:
            return Event.OWNER_ANSWERS
        return _wait(row, f"{row.source} is silent; {row.target}: {seen.target.why or seen.target.away}")
    if not seen.owner.owns:
        return _takes_up(row, seen)
    row.new_epoch, row.target = seen.row.epoch, seen.row.region
    row.facts["loss"] = _loss(row, seen, store)
    return Event.TAKEN


def _loss(row: EvacuatedCell, seen: Seen, store: OwnershipStore) -> dict[str, object]:
    """What the dead owner was last known to have, against where the new one left its log."""
    last = row.facts.get("last_seen") or {}
    fork = next((p.fork for p in store.promotions(row.cell_id) if p.epoch == seen.row.epoch), None)
    position, committed = last.get("position"), last.get("committed_at")
    missing = None if fork is None or not position else max(0, position - fork)
    late = (
        None
        if committed is None or seen.owner.replayed_at is None
        else round(max(0.0, committed - seen.owner.replayed_at), 3)
    )
    return {
        "bytes": missing,
        "seconds": late,
        "says": (
            f"what {row.source} wrote last is not known: it is told of when it comes back"
            if missing is None
            else f"{missing:,} bytes of {row.source}'s log, as it was last seen, did not reach {row.target}"
        ),
    }


def watch(row: EvacuatedCell, store: OwnershipStore) -> Event | None:
    """It works at the target: its records have followed, and its lag stays small for a while."""
    seen = look(row, store)
    if seen.row.region == row.source:
        return _taken_back(row)
    row.target = seen.row.region
    row.cell.refresh_from_db(fields=["ownership_epoch"])
    if row.cell.ownership_epoch < (row.new_epoch or 0):
        return _wait(row, "waits until our records say who owns it")
    try:
        lag = call_cell(row.cell, "GET", "/internal/status").get("lag_ms")
    except CellUnreachable as fault:
        row.facts.pop("calm_since", None)
        return _wait(row, f"waits for the cell: {fault}")
    row.progress["lag_ms"] = lag
    limit, seconds = row.evacuation.calm_lag_ms, row.evacuation.calm_seconds
    if lag is not None and lag > limit:
        row.facts.pop("calm_since", None)
        return _wait(
            row, f"runs start {lag:,} ms late in {row.target}; it is watched until that is below {limit:,}"
        )
    since = row.facts.setdefault("calm_since", time.time())
    if time.time() - since < seconds:
        return _wait(row, f"runs start in time in {row.target}; watched for {seconds} s")
    reopen(row, where=row.target)
    return Event.CALM


def leave(row: EvacuatedCell, store: OwnershipStore) -> Event | None:
    """The evacuation was given up while the cell is watched: it stays where it works."""
    owned = store.cell(row.cell_id)
    if owned is not None and owned.region == row.source:
        return _taken_back(row)
    row.target = row.target if owned is None else owned.region
    reopen(row, where=row.target)
    return Event.CALM


def undo(row: EvacuatedCell, store: OwnershipStore) -> Event | None:
    """It stays, and takes tenants as before, but for one whose owner is silent."""
    owned = store.cell(row.cell_id)
    where = row.source if owned is None else owned.region
    if where == row.source and row.facts.get("owner_silent"):
        row.why = f"stays in {where}, which is silent: it takes no new tenants until somebody opens it"
        return Event.UNDONE
    reopen(row, where=where)
    row.why = f"stays in {where}"
    return Event.UNDONE


def close(row: EvacuatedCell) -> None:
    """The cell takes no new tenants; what it did before is kept. Drains and fills of it are paused."""
    cell = Cell.objects.get(pk=row.cell_id)
    if not row.state_before:
        row.state_before = cell.state
        row.save(update_fields=["state_before"])
    if cell.state == CellState.OPEN:
        set_cell_state(name=cell.name, state=CellState.CORDONED, actor=actor(row), reason=_reason(row))
    for relocation in Relocation.objects.filter(cell=cell, state=RelocationState.RUNNING):
        pause_relocation(relocation_id=relocation.id, actor=actor(row), reason=_reason(row))


def reopen(row: EvacuatedCell, *, where: str) -> None:
    """A cell that stays, or came back, takes tenants again if it did before it was evacuated. `where`: the
    region that owns it. One that left its region takes none."""
    failback = row.evacuation.kind == EvacuationKind.FAIL_BACK
    home = where == row.evacuation.region_id
    if not home and not failback:
        return
    before = row.state_before
    if failback and home:
        closed = Q(state__in=[State.DONE.value, State.SKIPPED.value]) | Q(
            Q(returning=True) | Q(facts__owner_silent=True), state=State.ABORTED.value
        )
        left = (
            EvacuatedCell.objects.filter(closed, cell=row.cell_id, evacuation__kind=EvacuationKind.EVACUATE)
            .exclude(state_before="")
            .order_by("-id")
            .first()
        )
        before = left.state_before if left is not None else before
    cell = Cell.objects.get(pk=row.cell_id)
    if before == CellState.OPEN and cell.state == CellState.CORDONED:
        set_cell_state(name=cell.name, state=CellState.OPEN, actor=actor(row), reason=_reason(row))


def actor(row: EvacuatedCell) -> Actor:
    """In whose name a step acts."""
    return service(row.evacuation.public_id)


def _reason(row: EvacuatedCell) -> str:
    return (
        row.evacuation.reason or f"{row.evacuation.get_kind_display().lower()} of {row.evacuation.region_id}"
    )


def _silent(row: EvacuatedCell, seen: Seen) -> bool:
    """Whether the owner has neither answered nor renewed for a while. One unanswered call says nothing."""
    if not seen.owner.away:
        return False
    now, sight = time.time(), [seen.row.epoch, seen.row.renewals]
    before = row.facts.get("silent")
    if before is None or before["sight"] != sight:
        row.facts["silent"] = {"sight": sight, "since": now}
        return False
    return bool(now - before["since"] >= SILENT_SECONDS)


def _gone(row: EvacuatedCell, seen: Seen, why: str) -> Event:
    reopen(row, where=seen.row.region)
    row.why = why
    return Event.GONE


def _taken_back(row: EvacuatedCell) -> Event:
    row.why = f"{row.source} owns it again"
    return Event.TAKEN_BACK


def _takes_up(row: EvacuatedCell, seen: Seen) -> Event | None:
    return _wait(row, f"{seen.row.region} takes it up: {seen.owner.why or seen.owner.away}")


def _wait(row: EvacuatedCell, why: str) -> Event | None:
    row.why = why[:500]
    return None


STEPS: dict[State, Callable[[EvacuatedCell, OwnershipStore], Event | None]] = {
    State.SETTLE: settle,
    State.CATCH_UP: catch_up,
    State.HAND_OVER: hand_over,
    State.TAKEOVER: take_over,
    State.WATCH: watch,
    State.UNDOING: undo,
}
