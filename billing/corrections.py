"""Corrections of the ledger by a person: new rows that refer to the record they correct, in the audit log."""

from __future__ import annotations

import uuid

from django.db import connection, transaction

from billing.hooks import Service, audit
from billing.models import MeterConflict, MeterCorrection, MeterRecord
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


def accept_refused(conflict: MeterConflict, *, actor: str, reason: str) -> MeterCorrection:
    """What was refused is right: corrects the record to it (`by_hand` settles the conflict)."""
    return correct(
        MeterRecord(**{name: getattr(conflict, name) for name in _KEY}),
        quantity=conflict.refused,
        actor=actor,
        reason=reason,
        correction_id=uuid.uuid5(uuid.NAMESPACE_OID, f"clockhouse conflict {conflict.pk}"),
    )
