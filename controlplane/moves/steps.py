"""What a move does in each of its states. Every step may be done again from its beginning: after a crash of
anything, whoever drives the move next does just that.

A step returns the event that ends it, or None where it waits; `move.why` then says for what.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from cells.contract import MoveVerb
from controlplane.actors import service
from controlplane.events.models import Change
from controlplane.events.recording import publish, record, want
from controlplane.locks import lock_tenant
from controlplane.moves.cells import address_of, at_destination, at_source
from controlplane.moves.machine import Event, State
from controlplane.moves.models import TenantMove
from controlplane.ownership import OwnershipStore, Superseded
from controlplane.ownership.installed import installed_store
from controlplane.topology.cell_client import CellRefused, CellUnreachable
from controlplane.topology.models import CellKind, Placement, PlacementState, Tenure
from controlplane.topology.push import TOPIC, config_of

#: The barrier lifts by itself after this (milliseconds); how long a seal may take, and the rest behind it.
BARRIER_MS, SEAL_MS, TAIL_MS = 8_000, 3_000, 4_000
#: With less than this to follow, the barrier is worth raising (bytes).
CLOSE_BYTES = 1 << 20
#: With more log than this kept back for the other side the move is given up (bytes).
MOST_LOG_BYTES = 32 << 30
#: After as many barriers that did not hold, or attempts, the move is given up.
MOST_LIFTS, MOST_ATTEMPTS = 20, 8
VERIFY_MS = 60_000


class GiveUp(Exception):
    """The move cannot succeed; it is undone."""


def prepare(move: TenantMove, store: OwnershipStore) -> Event | None:
    """Read what this attempt is based on; both cells hold the tenant for this move, and nothing of it is at
    the destination."""
    if move.attempt > MOST_ATTEMPTS:
        raise GiveUp(f"begun {MOST_ATTEMPTS} times, and taken over each time")
    placement = Placement.objects.select_related("cell", "tenant__quota").get(tenant=move.tenant_id)
    owned = store.tenant(move.tenant_id)
    if owned is None or owned.cell != move.source_id or placement.cell_id != move.source_id:
        raise GiveUp(f"the tenant does not live on {move.source_id}")
    if owned.epoch != placement.epoch:
        return _wait(move, "waits until the tenant's present epoch is recorded")
    move.epoch = max(placement.epoch, placement.cell.ownership_epoch)
    move.owned_epoch = owned.epoch
    if move.attempt > 1:
        at_source(move, MoveVerb.ABORT, new_epoch=move.epoch)
    told = at_source(move, MoveVerb.PUBLISH)
    tenant = placement.tenant
    ready = at_destination(
        move,
        MoveVerb.PREPARE,
        conninfo=told["conninfo"],
        schema=told["schema"],
        days=tuple(told["days"]),
        state=tenant.state,
        config=config_of(tenant),
        config_version=tenant.version,
    )
    move.source_epoch, move.destination_epoch = told["cell_epoch"], ready["cell_epoch"]
    move.facts = {"rows": told["rows"], "began": time.time()}
    move.progress = {"rows": 0, "rows_total": sum(told["rows"].values())}
    return Event.PREPARED


def copy(move: TenantMove, store: OwnershipStore) -> Event | None:
    """Copy all rows while the tenant works."""
    at_destination(move, MoveVerb.SUBSCRIBE)
    told = at_destination(move, MoveVerb.PROGRESS)
    if not told["following"]:
        raise GiveUp(f"{move.destination_id} stopped copying; its PostgreSQL log says why")
    _check_log(move, at_source(move, MoveVerb.PROGRESS))
    total = move.progress["rows_total"]
    done = sum(n for table, n in move.facts["rows"].items() if table in told["copied"])
    rows = min(total, done + told["rows_copying"])
    began = move.facts.setdefault("copy_began", time.time())
    elapsed = time.time() - began
    rate = rows / elapsed if elapsed > 0.5 else 0
    move.progress |= {
        "rows": rows,
        "bytes_copying": told["bytes_copying"],
        "rows_per_second": round(rate),
        "eta_seconds": round((total - rows) / rate) if rate else None,
        "tables": told["tables"],
        "tables_ready": told["tables_ready"],
    }
    if told["tables"] and told["tables_ready"] == told["tables"]:
        move.facts["copy_seconds"] = round(elapsed, 2)
        move.progress |= {"rows": total, "eta_seconds": 0}
        return Event.COPIED
    return _wait(
        move, f"copies: {rows:,} of {total:,} rows, {told['tables_ready']} of {told['tables']} tables done"
    )


def catch_up(move: TenantMove, store: OwnershipStore) -> Event | None:
    """Let changes follow until there is little left, and compare all that is settled."""
    if move.lifts > MOST_LIFTS:
        raise GiveUp(f"{MOST_LIFTS} barriers did not hold")
    if (waiting := _behind(move)) is not None:
        return _wait(move, waiting)
    if "verified" not in move.facts:
        try:
            move.facts["verified"] = at_destination(move, MoveVerb.VERIFY, patience_ms=VERIFY_MS)
        except CellRefused as refused:
            raise GiveUp(f"the copy is not the same: {refused}") from refused
        if (waiting := _behind(move)) is not None:
            return _wait(move, waiting)
    return Event.CAUGHT_UP


def _behind(move: TenantMove) -> str | None:
    told = at_source(move, MoveVerb.PROGRESS)
    _check_log(move, told)
    at_destination(move, MoveVerb.PROGRESS)
    lag = told["lag_bytes"] or 0
    move.progress["lag_bytes"] = lag
    return f"follows: {lag:,} bytes of changes behind" if lag > CLOSE_BYTES else None


def _check_log(move: TenantMove, told: dict[str, Any]) -> None:
    if told["log"] == "lost":
        raise GiveUp(f"{move.source_id} could not keep the changes that long (max_slot_wal_keep_size)")
    if (told["log_bytes"] or 0) > MOST_LOG_BYTES:
        raise GiveUp(f"{move.source_id} had to keep {told['log_bytes']:,} bytes of log for it")


def barrier(move: TenantMove, store: OwnershipStore) -> Event | None:
    """Nothing new begins. Routers hold the tenant's requests since this state was entered."""
    at_source(move, MoveVerb.BARRIER, barrier_ms=BARRIER_MS)
    return Event.RAISED


def seal(move: TenantMove, store: OwnershipStore) -> Event | None:
    """Nothing is written any more, and the destination has all of it."""
    began = time.time()
    there = address_of(move.destination)
    sealed = at_source(move, MoveVerb.SEAL, patience_ms=SEAL_MS, peer_url=there)
    move.facts.setdefault("sealed_at", began)
    move.facts["sealed_lsn"] = sealed["lsn"]
    try:
        move.facts["tail"] = at_destination(move, MoveVerb.TAIL, patience_ms=TAIL_MS, lsn=sealed["lsn"])
    except CellRefused as refused:
        raise GiveUp(f"after the seal: {refused}") from refused
    _still_alone(move)
    return Event.SEALED


def _still_alone(move: TenantMove) -> None:
    """The last look before the handoff: whoever came to a cell that is kept for one tenant has it."""
    if move.destination.kind != CellKind.DEDICATED:
        return
    other = Placement.objects.filter(cell=move.destination).exclude(tenant=move.tenant_id).first()
    if other is not None:
        raise GiveUp(f"{move.destination_id} is kept for one tenant, and another has come meanwhile")


def hand_off(move: TenantMove, store: OwnershipStore) -> Event | None:
    """Claim the tenant's row for the destination and let it begin. Of all who claim, one wins."""
    owned = store.tenant(move.tenant_id)
    if owned is not None and owned.cell == move.source_id and owned.epoch == move.owned_epoch:
        try:
            owned = store.claim_tenant(move.tenant_id, cell=move.destination_id, expected=owned.epoch)
        except Superseded:
            owned = store.tenant(move.tenant_id)
    if owned is None or owned.cell != move.destination_id:
        return Event.TAKEN_OVER
    move.new_epoch = max(owned.epoch, move.destination.ownership_epoch)
    at_destination(move, MoveVerb.ACTIVATE, new_epoch=move.new_epoch)
    if "sealed_at" in move.facts:
        move.facts.setdefault("pause_ms", round((time.time() - move.facts["sealed_at"]) * 1000))
    settle_placement(move, owned.epoch)
    return Event.HANDED_OFF


@transaction.atomic
def settle_placement(move: TenantMove, epoch: int) -> None:
    """The tenant lives at the destination now: our own rows say so, and routers are told."""
    tenant = lock_tenant(move.tenant_id)
    placement = Placement.objects.get(tenant=tenant)
    if placement.cell_id == move.destination_id and placement.epoch == epoch:
        return
    Tenure.objects.filter(tenant=tenant, until=None).update(until=Now())
    Tenure.objects.create(tenant=tenant, cell=move.destination, epoch=epoch)
    Placement.objects.filter(pk=placement.pk).update(
        cell=move.destination,
        epoch=epoch,
        state=PlacementState.ACTIVE,
        why=move.choice,
        placed_at=Now(),
        confirmed_version=0,
        confirmed_at=None,
    )
    publish(Change.Kind.TENANT, tenant.public_id)
    want(topic=TOPIC, subject=str(tenant.id))
    record(
        action="tenant.moved", subject=move.public_id, tenant_id=tenant.id, actor=service("moves"),
        reason=move.reason, before={"cell": move.source_id, "epoch": placement.epoch},
        after={"cell": move.destination_id, "epoch": epoch, "pause_ms": move.facts.get("pause_ms")},
    )  # fmt: skip


def verify(move: TenantMove, store: OwnershipStore) -> Event | None:
    """The source knows where its tenant went; the destination has the timers of the coming hours."""
    try:
        _depart(move)
    except CellUnreachable as away:
        # It finds out by itself when it is back; nothing here depends on it.
        move.facts["departed"] = f"not yet: {away}"[:300]
    told = at_destination(move, MoveVerb.PROGRESS)
    if told["tenant_state"] not in ("ACTIVE", "SUSPENDED") or told["ownership_epoch"] != move.new_epoch:
        at_destination(move, MoveVerb.ACTIVATE, new_epoch=move.new_epoch)
        return _wait(move, f"waits until {move.destination_id} has taken the tenant")
    at_destination(move, MoveVerb.LOAD)
    at_destination(move, MoveVerb.RELEASE)
    return Event.VERIFIED


def _depart(move: TenantMove) -> None:
    there = address_of(move.destination)
    at_source(move, MoveVerb.DEPART, new_epoch=move.new_epoch, peer_url=there)
    move.facts["departed"] = "told"


def clean_up(move: TenantMove, store: OwnershipStore) -> Event | None:
    """Delete what is left at the source, once it is metered."""
    if move.facts.get("departed") != "told":
        _depart(move)
    told = at_source(move, MoveVerb.CLEAN)
    move.facts["deleted"] = move.facts.get("deleted", 0) + told["deleted"]
    if told["done"]:
        return Event.CLEANED
    return _wait(move, f"{move.source_id} {told['why']}; {move.facts['deleted']:,} rows deleted")


def undo(move: TenantMove, store: OwnershipStore) -> Event | None:
    """Both cells forget the move; the tenant works on where it is. The source first: it may be sealed."""
    if move.epoch:
        at_source(move, MoveVerb.ABORT)
        at_destination(move, MoveVerb.ABORT)
    Placement.objects.filter(tenant=move.tenant_id, cell=move.source_id).update(state=PlacementState.ACTIVE)
    return Event.UNDONE


def refused(move: TenantMove, store: OwnershipStore, fault: CellRefused) -> Event | None:
    """What a cell's refusal means: another owner, a barrier that fell, or nothing that would pass."""
    if move.at in (State.ABORTING, State.VERIFY, State.CLEANUP):
        return _wait(move, str(fault))
    owned = store.tenant(move.tenant_id)
    if move.at is State.HANDOFF:
        return _wait(move, str(fault))
    if move.at is not State.PREPARE and (owned is None or owned.epoch != move.owned_epoch):
        return Event.TAKEN_OVER
    if move.epoch and (_taken_over(at_source, move) or _taken_over(at_destination, move)):
        return Event.TAKEN_OVER
    if move.at in (State.BARRIER, State.SEAL):
        return Event.LIFTED
    raise GiveUp(str(fault)) from fault


def _taken_over(ask: Callable[..., dict[str, Any]], move: TenantMove) -> bool:
    return bool(ask(move, MoveVerb.PROGRESS).get("taken_over"))


def _wait(move: TenantMove, why: str) -> Event | None:
    move.why = why[:500]
    return None


STEPS: dict[State, Callable[[TenantMove, OwnershipStore], Event | None]] = {
    State.PREPARE: prepare,
    State.COPY: copy,
    State.CATCH_UP: catch_up,
    State.BARRIER: barrier,
    State.SEAL: seal,
    State.HANDOFF: hand_off,
    State.VERIFY: verify,
    State.CLEANUP: clean_up,
    State.ABORTING: undo,
}

__all__ = ["STEPS", "GiveUp", "installed_store", "refused", "settle_placement"]
