"""Drives a move along its table: one driver at a time, by a lease that it renews while a step is under way.

The lease only saves work. Two drivers do no harm: verbs are idempotent, transitions are conditional on the
state they start from, and the claim of HANDOFF is won once.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import structlog
from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from cells.contract import MoveVerb
from controlplane.actors import service
from controlplane.events.models import Change
from controlplane.events.recording import publish, record
from controlplane.moves.cells import at_destination, at_source
from controlplane.moves.machine import ABORTABLE, ENDED, HELD, Event, State, after
from controlplane.moves.models import MoveStep, TenantMove
from controlplane.moves.steps import STEPS, GiveUp, installed_store, refused
from controlplane.ownership import OwnershipStore
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.topology.cell_client import CellRefused, CellUnreachable

_LOG = structlog.get_logger(__name__)

LEASE = timedelta(seconds=6)
_RENEW_SECONDS = 2.0
#: One call drives at most this long (seconds); pauses between looks at something that takes time, by state.
_DRIVE_SECONDS = 25.0
_PAUSES = {State.COPY: 0.25, State.CATCH_UP: 0.05, State.SEAL: 0.05, State.HANDOFF: 0.1, State.VERIFY: 0.2}
#: While cells or the ownership store are away, and while CLEANUP waits for meters (seconds).
_LONG_PAUSE = 1.0
_FIELDS = (
    *("why", "epoch", "owned_epoch", "source_epoch", "destination_epoch", "new_epoch", "progress", "facts"),
    *("abort_reason",),
)


def drive(move_id: uuid.UUID, *, store: OwnershipStore | None = None) -> float | None:
    """Takes a move as far as it goes now; in how many seconds to look again. None where it is over, or
    somebody else drives it. Only between barrier and handoff it waits in here: others need the worker."""
    holder = uuid.uuid4()
    if not _lease(move_id, holder):
        return None
    until = time.monotonic() + _DRIVE_SECONDS
    pause = 0.0
    try:
        with _renewed(move_id, holder):
            while time.monotonic() < until:
                move = TenantMove.objects.select_related("tenant", "source", "destination").get(pk=move_id)
                if move.at in ENDED or move.holder != holder:
                    return None
                pause = _step(move, store or installed_store())
                if pause and move.at not in HELD:
                    return pause
                time.sleep(pause)
    finally:
        TenantMove.objects.filter(pk=move_id, holder=holder).update(
            holder=None, leased_until=Now() + timedelta(seconds=pause)
        )
    return 0.0


def _step(move: TenantMove, store: OwnershipStore) -> float:
    """Does what the present state asks for, once; seconds to wait before the next look."""
    state = move.at
    event: Event | None = None
    pause = 0.0
    try:
        if move.abort_reason is not None and state in ABORTABLE:
            event, move.why = Event.ABORT, move.abort_reason
        else:
            try:
                event = STEPS[state](move, store)
            except CellRefused as fault:
                event = refused(move, store, fault)
                if event is not None:
                    move.why = str(fault)[:500]
    except GiveUp as fault:
        event, move.why = Event.ABORT, str(fault)[:500]
        move.abort_reason = move.why
    except CellUnreachable as fault:
        move.why, pause = f"waits for a cell: {fault}"[:500], _LONG_PAUSE
    except OwnershipUnavailable as fault:
        move.why, pause = f"waits for the ownership store: {fault}"[:500], _LONG_PAUSE
    if event is None:
        _keep(move)
        return pause or _PAUSES.get(state, _LONG_PAUSE)
    _advance(move, state, event)
    return 0.0


def _keep(move: TenantMove) -> None:
    """Write down how far it is, unless somebody else took it on."""
    values = {name: getattr(move, name) for name in _FIELDS if name != "abort_reason"}
    TenantMove.objects.filter(pk=move.pk, state=move.state).update(**values)


@transaction.atomic
def _advance(move: TenantMove, state: State, event: Event) -> None:
    """Follow an arrow, with everything that goes with it, if the move is still where it starts."""
    target = after(state, event)
    if target is None:
        _LOG.error("a move met an event that means nothing there", state=state, was=event, move=str(move.id))
        return
    values = {name: getattr(move, name) for name in _FIELDS}
    if values["abort_reason"] is None:
        del values["abort_reason"]  # somebody may have set it meanwhile
    if event is Event.TAKEN_OVER:
        values |= {"attempt": move.attempt + 1, "facts": {}}
    if event is Event.LIFTED:
        values |= {"lifts": move.lifts + 1}
        values["facts"] = {k: v for k, v in move.facts.items() if k not in ("sealed_at", "sealed_lsn")}
    if target in ENDED:
        values |= {"finished_at": Now()}
    why = values["why"] if event in (Event.ABORT, Event.LIFTED, Event.TAKEN_OVER) else ""
    values["why"] = why or _SAYS[target]
    moved = TenantMove.objects.filter(pk=move.pk, state=state).update(
        state=target, changed_at=Now(), **values
    )
    if not moved:
        return
    MoveStep.objects.filter(move=move, ended_at=None).update(ended_at=Now(), event=event, why=why)
    if target not in ENDED:
        MoveStep.objects.create(move=move, attempt=values.get("attempt", move.attempt), state=target)
    if (state in HELD) != (target in HELD):
        publish(Change.Kind.TENANT, move.tenant.public_id)
    if target in ENDED or event is Event.TAKEN_OVER:
        record(
            action="tenant.move_" + ("restart" if event is Event.TAKEN_OVER else target.lower()),
            subject=move.public_id, tenant_id=move.tenant_id, actor=service("moves"), reason=why,
            before={"state": state}, after={"state": target, "cell": _home(move, target)},
        )  # fmt: skip


_SAYS = {
    State.PREPARE: "makes both cells ready",
    State.COPY: "copies, while the tenant works",
    State.CATCH_UP: "follows and compares",
    State.BARRIER: "holds new work back for a moment",
    State.SEAL: "seals the source",
    State.HANDOFF: "hands the tenant over",
    State.VERIFY: "the tenant works in its new cell; everybody is told",
    State.CLEANUP: "deletes what is left at the source",
    State.DONE: "done",
    State.ABORTING: "both cells forget the move",
    State.ABORTED: "given up; the tenant stays where it was",
}


def _home(move: TenantMove, target: State) -> str:
    return str(move.destination_id if target is State.DONE else move.source_id)


# --- the lease -------------------------------------------------------------------------------
def _lease(move_id: uuid.UUID, holder: uuid.UUID) -> bool:
    free = TenantMove.objects.filter(pk=move_id).filter(Q(holder=None) | Q(leased_until__lt=Now()))
    return bool(free.update(holder=holder, leased_until=Now() + LEASE))


@contextmanager
def _renewed(move_id: uuid.UUID, holder: uuid.UUID) -> Iterator[None]:
    """Renews the lease from a thread of its own: one call of a cell may take minutes."""
    over = threading.Event()

    def renew() -> None:
        try:
            while not over.wait(_RENEW_SECONDS):
                TenantMove.objects.filter(pk=move_id, holder=holder).update(leased_until=Now() + LEASE)
                _show_we_live(move_id)
        finally:
            connection.close()

    thread = threading.Thread(target=renew, name=f"lease of {move_id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show_we_live(move_id: uuid.UUID) -> None:
    """While one cell works on a verb for long, the other must not think that it was left alone."""
    move = TenantMove.objects.select_related("tenant", "source", "destination").get(pk=move_id)
    if move.at not in (State.SEAL, State.HANDOFF):
        return
    for ask in (at_source, at_destination):
        with suppress(CellUnreachable):
            ask(move, MoveVerb.PROGRESS)
