"""Drives an evacuation along its tables: one driver at a time, by a lease that it renews between its steps.

The lease only saves work. Two drivers do no harm: transitions are conditional on the state they start from,
and a handover is asked for under the epoch that was seen, so that it happens once.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

import structlog
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from controlplane.actors import service
from controlplane.errors import Refused
from controlplane.evacuations.machine import (
    ABORTABLE,
    ENDED,
    ENDED_WHOLE,
    HELD_BY_PAUSE,
    WHOLE,
    Event,
    State,
    Whole,
    after,
)
from controlplane.evacuations.models import EvacuatedCell, Evacuation, EvacuationStep
from controlplane.evacuations.steps import STEPS, NeedsSomebody, leave
from controlplane.events.recording import record
from controlplane.ownership import OwnershipStore
from controlplane.ownership.installed import installed_store
from controlplane.ownership.store import OwnershipUnavailable

_LOG = structlog.get_logger(__name__)

#: A step asks two keepers, the store and a cell; each answers or does not within seconds.
LEASE = timedelta(seconds=30)
#: Between looks while something takes time (seconds).
_PAUSE = 0.5
_FIELDS = (*("why", "source", "target", "returning", "epoch", "new_epoch", "lifts", "progress", "facts"),)


def drive(evacuation_id: uuid.UUID, *, store: OwnershipStore | None = None) -> float | None:
    """One round: each cell that is under way takes one step; in how many seconds to look again. None where it
    is over, or somebody else drives it."""
    holder = uuid.uuid4()
    free = Evacuation.objects.filter(pk=evacuation_id).filter(Q(holder=None) | Q(leased_until__lt=Now()))
    if not free.update(holder=holder, leased_until=Now() + LEASE):
        return None
    try:
        return _round(evacuation_id, holder, store or installed_store())
    finally:
        Evacuation.objects.filter(pk=evacuation_id, holder=holder).update(
            holder=None, leased_until=Now() + timedelta(seconds=_PAUSE)
        )


def _round(evacuation_id: uuid.UUID, holder: uuid.UUID, store: OwnershipStore) -> float | None:
    found = Evacuation.objects.get(pk=evacuation_id)
    if found.at in ENDED_WHOLE:
        return None
    rows = list(found.cells.select_related("cell", "evacuation").order_by("position"))
    moved = False
    for row in rows:
        row.evacuation = found
        if _stands(found, row, rows):
            continue
        moved |= _step(found, row, store)
        mine = Evacuation.objects.filter(pk=found.pk, holder=holder).update(leased_until=Now() + LEASE)
        found.refresh_from_db(fields=["state", "hand_back", "at_once"])
        if not mine or found.at in ENDED_WHOLE:
            return None
    return _look_at_whole(found, moved)


def _stands(found: Evacuation, row: EvacuatedCell, rows: list[EvacuatedCell]) -> bool:
    """Whether nothing is to be done for a cell now."""
    under_way = sum(one.at not in ENDED | {State.WAITING} for one in rows)
    if found.at is Whole.ABORTING:
        returns = found.hand_back and not row.returning and row.at is State.DONE
        return under_way >= found.at_once if returns else row.at in ENDED
    if row.at in ENDED:
        return True
    if found.at is Whole.PAUSED:
        return row.at in HELD_BY_PAUSE
    return row.at is State.WAITING and under_way >= found.at_once


def _step(found: Evacuation, row: EvacuatedCell, store: OwnershipStore) -> bool:
    """Does what the present state asks for, once; whether the cell went on."""
    state = row.at
    event: Event | None = None
    try:
        event = _by_the_whole(found, row, store)
        if event is None and state in STEPS:
            event = STEPS[state](row, store)
    except OwnershipUnavailable as fault:
        row.why = f"waits for the ownership store: {fault}"[:500]
    except Refused as refused:
        row.why = f"waits: {refused}"[:500]
    except NeedsSomebody as fault:
        row.why = str(fault)[:500]
        _pause(found, row)
    except Exception as fault:  # noqa: BLE001 - whatever it is, people read it and the other cells go on
        _LOG.exception("a step of an evacuation failed", cell=row.cell_id, state=state)
        row.why = f"{type(fault).__name__}: {fault}"[:500]
    if event is None:
        values = {name: getattr(row, name) for name in _FIELDS}
        EvacuatedCell.objects.filter(pk=row.pk, state=state).update(**values)
        return False
    return _advance(found, row, state, event)


def _by_the_whole(found: Evacuation, row: EvacuatedCell, store: OwnershipStore) -> Event | None:
    """What the state of the whole does to a cell, whatever its own step would."""
    if row.at is State.WAITING and found.at is Whole.RUNNING:
        return Event.BEGUN
    comes_back = found.at is Whole.ABORTING and found.hand_back and row.returning
    if row.at is State.HAND_OVER and "asked" not in row.facts:
        # What is handed over was asked for before a pause or an abort, or not at all.
        if found.at is Whole.RUNNING or comes_back:
            return None
        row.why = f"{row.source} was not asked to hand over before that was stopped"
        return Event.LIFTED
    if found.at is not Whole.ABORTING or comes_back:
        return None
    if row.at in ABORTABLE:
        return Event.ABORT
    if row.at in (State.DONE, State.WATCH) and found.hand_back:
        return Event.BACK
    return leave(row, store) if row.at is State.WATCH else None


@transaction.atomic
def _advance(found: Evacuation, row: EvacuatedCell, state: State, event: Event) -> bool:
    """Follow an arrow, with everything that goes with it, if the cell is still where it starts."""
    target = after(state, event)
    if target is None:
        _LOG.error("a cell met an event that means nothing there", state=state, was=event, cell=row.cell_id)
        return False
    if event is Event.BACK:
        row.source, row.target, row.returning = row.target, row.source, True
        row.facts = {"handed_over": row.facts}
        row.new_epoch = None
    if event is Event.ABORT:
        row.facts["owner_silent"] = state is State.TAKEOVER
    if event in (Event.LIFTED, Event.TAKEN_BACK):
        row.lifts += row.facts.pop("asked", None) is not None
        row.facts.pop("calm_since", None)
        row.new_epoch = None
    why = row.why if event in _TELLING else ""
    row.why = why or SAYS[target].format(source=row.source, target=row.target)
    values: dict[str, object] = {name: getattr(row, name) for name in _FIELDS}
    if event is Event.BEGUN:
        values["began_at"] = Now()
    values["finished_at"] = Now() if target in ENDED else None
    if not EvacuatedCell.objects.filter(pk=row.pk, state=state).update(state=target, **values):
        return False
    row.state = target.value
    EvacuationStep.objects.filter(evacuated=row, ended_at=None).update(ended_at=Now(), event=event, why=why)
    if target not in ENDED:
        EvacuationStep.objects.create(evacuated=row, state=target)
    if (action := _ACTIONS.get(event)) is not None:
        record(
            action=f"evacuation.{action}", subject=row.cell_id, tenant_id=None,
            actor=service(found.public_id), reason=why or found.reason,
            before={"region": row.source, "epoch": row.epoch or None},
            after={"region": row.target, "epoch": row.new_epoch, "evacuation": found.public_id,
                   "loss": row.facts.get("loss"), "handed_over_ms": row.facts.get("handed_over_ms")},
        )  # fmt: skip
    return True


#: Events whose reason a person wants to read afterwards.
_TELLING = frozenset(
    {*(Event.LIFTED, Event.OWNER_SILENT, Event.OWNER_ANSWERS, Event.GONE, Event.TAKEN_BACK, Event.UNDONE)}
)
#: What is in the audit log of a cell, and in the feed.
_ACTIONS = {
    Event.HANDED_OVER: "cell_handed_over",
    Event.TAKEN: "cell_taken_over",
    Event.TAKEN_BACK: "cell_taken_back",
    Event.LIFTED: "cell_lifted",
    Event.GONE: "cell_skipped",
}
SAYS = {
    State.WAITING: "waits for its turn",
    State.SETTLE: "takes no new tenants; moves from and to it end",
    State.CATCH_UP: "waits until {target} has nearly all of its log",
    State.HAND_OVER: "is handed over to {target}",
    State.TAKEOVER: "{source} is silent: waits until survivors have taken it over",
    State.WATCH: "works in {target}; its lag is watched",
    State.DONE: "works in {target}",
    State.UNDOING: "stays in {source}",
    State.ABORTED: "stays in {source}",
    State.SKIPPED: "was skipped",
}


@transaction.atomic
def _pause(found: Evacuation, row: EvacuatedCell) -> None:
    """It needs an operator."""
    changed = Evacuation.objects.filter(pk=found.pk, state=Whole.RUNNING).update(
        state=Whole.PAUSED, changed_at=Now(), why=f"paused: {row.why}"[:500]
    )
    if changed:
        found.state = Whole.PAUSED.value
        record(
            action="evacuation.pause", subject=found.public_id, tenant_id=None,
            actor=service("evacuations"), reason=row.why, before={"state": Whole.RUNNING},
            after={"state": Whole.PAUSED, "region": found.region_id, "cell": row.cell_id},
        )  # fmt: skip


@transaction.atomic
def _look_at_whole(found: Evacuation, moved: bool) -> float | None:
    """Says in one line what it does, and ends it where nothing is left to do."""
    rows = list(found.cells.order_by("position"))
    left = [row for row in rows if row.at not in ENDED]
    if found.at is Whole.ABORTING and found.hand_back:
        left += [row for row in rows if row.at is State.DONE and not row.returning]
    end = WHOLE.get((found.at, "end")) if not left else None
    if end is None:
        if found.at is not Whole.PAUSED:
            Evacuation.objects.filter(pk=found.pk, state=found.state).update(why=line(rows), changed_at=Now())
        return 0.0 if moved else _PAUSE
    why = line(rows)
    ended = Evacuation.objects.filter(pk=found.pk, state=found.state).update(
        state=end, why=why, changed_at=Now(), finished_at=Now()
    )
    if ended:
        record(
            action="evacuation.done" if end is Whole.DONE else "evacuation.aborted",
            subject=found.public_id, tenant_id=None, actor=service("evacuations"), reason=found.reason,
            before={"state": found.state},
            after={"state": end, "region": found.region_id, "kind": found.kind, "why": why},
        )  # fmt: skip
    return None


def line(rows: list[EvacuatedCell]) -> str:
    """One line: how far it is, and what the cells under way do or wait for."""
    gone = [row for row in rows if row.at is (State.ABORTED if row.returning else State.DONE)]
    parts = [f"{len(gone)} of {len(rows)} cells handed over"]
    if skipped := sum(row.at is State.SKIPPED for row in rows):
        parts.append(f"{skipped} skipped")
    if stayed := sum(row.at is State.ABORTED and not row.returning for row in rows):
        parts.append(f"{stayed} stayed")
    if back := sum(row.at is State.DONE and row.returning for row in rows):
        parts.append(f"{back} brought back")
    under_way = [row for row in rows if row.at not in ENDED and row.at is not State.WAITING]
    parts += [f"{row.cell_id} ({row.state.lower()}): {row.why}" for row in under_way[:3]]
    return "; ".join(parts)[:500]
