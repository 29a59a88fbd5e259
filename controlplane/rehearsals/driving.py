"""Drives a rehearsal from stage to stage: one driver at a time, by a lease, which saves work and no more."""

from __future__ import annotations

import uuid
from datetime import timedelta

import structlog
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from controlplane.actors import service
from controlplane.events.recording import record
from controlplane.ownership import OwnershipStore
from controlplane.ownership.installed import installed_store
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.rehearsals.models import ENDED, FOLLOWS, Rehearsal, RehearsedCell, Stage
from controlplane.rehearsals.report import sums_of
from controlplane.rehearsals.watching import count, cut, returning, watch

_LOG = structlog.get_logger(__name__)

#: A stage asks every keeper that takes part, and each cell; their answers take seconds.
LEASE = timedelta(seconds=90)
_PAUSE = 0.5


def drive(rehearsal_id: uuid.UUID, *, store: OwnershipStore | None = None) -> float | None:
    """One look; in how many seconds to look again. None where it is over, or somebody else drives it."""
    holder = uuid.uuid4()
    free = Rehearsal.objects.filter(pk=rehearsal_id).filter(Q(holder=None) | Q(leased_until__lt=Now()))
    if not free.update(holder=holder, leased_until=Now() + LEASE):
        return None
    try:
        found = Rehearsal.objects.get(pk=rehearsal_id)
        if found.at in ENDED:
            return None
        rows = list(found.cells.select_related("cell").order_by("id"))
        try:
            following = _look(found, rows, store or installed_store())
        except OwnershipUnavailable as fault:
            following, found.why = None, f"waits for the ownership store: {fault}"[:500]
        except Exception as fault:  # noqa: BLE001 - whatever it is, people read it and it is tried again
            _LOG.exception("a look at a rehearsal failed", rehearsal=found.public_id, state=found.state)
            following, found.why = None, f"{type(fault).__name__}: {fault}"[:500]
        _keep(found, rows, following)
        return None if following in ENDED else _PAUSE
    finally:
        Rehearsal.objects.filter(pk=rehearsal_id, holder=holder).update(
            holder=None, leased_until=Now() + timedelta(seconds=_PAUSE)
        )


def _look(found: Rehearsal, rows: list[RehearsedCell], store: OwnershipStore) -> Stage | None:
    match found.at:
        case Stage.CUTTING:
            return cut(found, rows)
        case Stage.CUT:
            return watch(found, rows)
        case Stage.RETURNING:
            return returning(found, rows, store)
        case _:
            return count(found, rows)


@transaction.atomic
def _keep(found: Rehearsal, rows: list[RehearsedCell], following: Stage | None) -> None:
    state = found.at
    for row in rows:
        row.save(update_fields=["facts", "counted", "report"])
    values: dict[str, object] = {"why": found.why, "changed_at": Now()}
    if following is not None and following in FOLLOWS[state]:
        values["state"] = following
    if following in ENDED:
        values["finished_at"] = Now()
        if following is Stage.DONE:
            values["why"] = "done; the report says what it proved"
    changed = Rehearsal.objects.filter(pk=found.pk, state=state).update(**values)
    if changed and following in ENDED:
        reports = [row.report for row in rows if row.report is not None]
        record(
            action="rehearsal.done" if following is Stage.DONE else "rehearsal.failed",
            subject=found.public_id, tenant_id=None, actor=service("rehearsals"), reason=found.reason,
            before={"state": state},
            after={"state": following, "region": found.region_id, "why": values["why"],
                   **(sums_of(reports) if reports else {})},
        )  # fmt: skip
