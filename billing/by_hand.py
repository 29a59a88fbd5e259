"""What a person settles: conflicts of meters, drift, months that wait for a cell that will never seal them.
Each says why, and is in the audit log."""

from __future__ import annotations

import uuid
from datetime import date

from django.db import transaction
from django.db.models.functions import Now

from billing import periods
from billing.corrections import NothingToCorrect, accept_refused
from billing.hooks import Actor, audit
from billing.models import DriftFinding, MeterConflict
from billing.months import next_month
from billing.refusals import Conflicting, Invalid, NotFound


@transaction.atomic
def settle_conflict(*, conflict_id: int, accept: bool, actor: Actor, reason: str) -> MeterConflict:
    """What stands is right, or with `accept` what was refused: then the ledger is corrected to it, and the
    day is added up again. A conflict that is settled stays so."""
    _check(reason)
    found = MeterConflict.objects.select_for_update().filter(pk=conflict_id).first()
    if found is None:
        raise NotFound("no such conflict")
    if found.settled_at is not None:
        raise Conflicting(f"it was settled by {found.settled_by}")
    if accept:
        try:
            accept_refused(found, actor=actor.name, reason=reason)
        except NothingToCorrect as e:
            raise Conflicting(str(e)) from e
    MeterConflict.objects.filter(pk=conflict_id).update(settled_at=Now(), settled_by=actor.name)
    found.refresh_from_db()
    audit(
        action="meter_conflict.settle", subject=f"conflict {found.pk}", tenant_id=found.tenant_id,
        actor=actor, reason=reason, before={"quantity": found.recorded},
        after={"quantity": found.refused if accept else found.recorded},
    )  # fmt: skip
    return found


@transaction.atomic
def settle_drift(*, finding_id: int, actor: Actor, reason: str) -> DriftFinding:
    """Looked into, and nothing more is to be done. With other figures it is another alarm."""
    _check(reason)
    found = DriftFinding.objects.select_for_update().filter(pk=finding_id).first()
    if found is None:
        raise NotFound("no such difference")
    if found.settled_at is not None:
        raise Conflicting(f"it was settled by {found.settled_by}")
    DriftFinding.objects.filter(pk=finding_id).update(settled_at=Now(), settled_by=actor.name)
    found.refresh_from_db()
    audit(
        action="drift.settle", subject=f"drift {found.pk}", tenant_id=found.tenant_id, actor=actor,
        reason=reason, after={"ledger": found.ledger, "rollup": found.rollup, "counted": found.counted},
    )  # fmt: skip
    return found


@transaction.atomic
def close_without_cells(
    *, tenant_id: uuid.UUID, month: date, today: date, actor: Actor, reason: str
) -> periods.Period:
    """Closes a month for good though some cell has not sealed it: what that cell may send one day becomes
    an adjustment of a later month. Earlier months still close first."""
    _check(reason)
    if next_month(month) > today:
        raise Conflicting(f"{month:%Y-%m} is not over")
    found = periods.close(tenant_id=tenant_id, month=month, actor=actor.name, without=reason)
    if isinstance(found, periods.Waiting):
        raise Conflicting(f"{month:%Y-%m} still waits: {'; '.join(found.waits_for)}")
    return found


def _check(reason: str) -> None:
    if not reason.strip():
        raise Invalid([("/reason", "is needed")])
