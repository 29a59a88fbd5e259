"""What persons decide about the ledger: corrections, which are rows that refer to the record they correct,
and alarms that were looked into. All of it is in the audit log."""

from __future__ import annotations

import uuid

from django.db import connection, transaction
from django.db.models.functions import Now

from billing.hooks import Service, audit
from billing.models import DriftFinding, MeterConflict, MeterCorrection, MeterRecord
from billing.sql import named_sql

_SQL = named_sql("ingest")
_KEY = ("tenant_id", "minute", "metric", "region_policy", "cell", "store", "epoch", "host")


class NothingToCorrect(Exception):
    """There is no such record, or the correction would take more than there is."""


@transaction.atomic
def correct(
    record: MeterRecord, *, quantity: int, actor: str, reason: str, correction_id: uuid.UUID
) -> MeterCorrection:
    """Makes a record count as `quantity` from now on. Its day is added up again; what is closed gets an
    adjustment. Again with the same id: the same correction, nothing more."""
    key = {name: getattr(record, name) for name in _KEY}
    with connection.cursor() as cursor:
        # Two corrections of one record are one after the other.
        cursor.execute(_SQL["lock_record"], {"key": "|".join(str(value) for value in key.values())})
    if known := MeterCorrection.objects.filter(pk=correction_id).first():
        return known
    standing = MeterRecord.objects.filter(**key).first()
    if standing is None or quantity < 0:
        raise NothingToCorrect(f"no record {key}" if standing is None else f"{quantity} is no quantity")
    before = standing.quantity + sum(MeterCorrection.objects.filter(**key).values_list("quantity", flat=True))
    made = MeterCorrection.objects.create(
        id=correction_id, **key, quantity=quantity - before, actor=actor, reason=reason
    )
    with connection.cursor() as cursor:
        cursor.execute(_SQL["mark"], {"tenant_id": record.tenant_id, "minute": record.minute})
    audit(
        action="meter.correct", subject=f"{record.metric} {record.cell} {record.minute:%Y-%m-%dT%H:%MZ}",
        tenant_id=record.tenant_id, actor=Service(name=actor), reason=reason,
        before={"quantity": before}, after={"quantity": quantity, "correction_id": str(correction_id)},
    )  # fmt: skip
    return made


@transaction.atomic
def accept_refused(conflict: MeterConflict, *, actor: str, reason: str) -> MeterCorrection:
    """Settles a conflict in favour of what was refused."""
    made = correct(
        MeterRecord(**{name: getattr(conflict, name) for name in _KEY}),
        quantity=conflict.refused,
        actor=actor,
        reason=reason,
        correction_id=uuid.uuid5(uuid.NAMESPACE_OID, f"clockhouse conflict {conflict.pk}"),
    )
    MeterConflict.objects.filter(pk=conflict.pk, settled_at=None).update(settled_at=Now(), settled_by=actor)
    return made


@transaction.atomic
def settle_conflict(conflict: MeterConflict, *, actor: str, reason: str) -> bool:
    """A person has looked into it: what stands is right. False: it was settled before."""
    rows = MeterConflict.objects.filter(pk=conflict.pk, settled_at=None)
    if not rows.update(settled_at=Now(), settled_by=actor):
        return False
    audit(
        action="meter_conflict.settle", subject=str(conflict)[:200], tenant_id=conflict.tenant_id,
        actor=Service(name=actor), reason=reason,
        before={"recorded": conflict.recorded, "refused": conflict.refused},
    )  # fmt: skip
    return True


@transaction.atomic
def settle_finding(finding: DriftFinding, *, actor: str, reason: str) -> bool:
    """A person has looked into a difference: nothing more is to be done while the figures stay these.
    False: it was settled before."""
    rows = DriftFinding.objects.filter(pk=finding.pk, settled_at=None)
    if not rows.update(settled_at=Now(), settled_by=actor):
        return False
    audit(
        action="drift.settle", subject=f"{finding.metric} {finding.cell} {finding.day}",
        tenant_id=finding.tenant_id, actor=Service(name=actor), reason=reason,
        before={"ledger": finding.ledger, "rollup": finding.rollup, "counted": finding.counted},
    )  # fmt: skip
    return True
