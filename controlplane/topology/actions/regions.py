"""Regions."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import transaction

from controlplane.actors import Actor
from controlplane.errors import invalid
from controlplane.events.recording import record
from controlplane.topology.models import NAME, Region


@transaction.atomic
def register_region(*, name: str, label: str = "", actor: Actor, reason: str) -> Region:
    """Makes a region known. Again with the same name: the label is updated."""
    try:
        NAME(name)
    except ValidationError as e:
        raise invalid("/name", e.messages[0]) from e
    region, created = Region.objects.get_or_create(name=name, defaults={"label": label})
    before = None if created else {"label": region.label}
    if not created and label and region.label != label:
        region.label = label
        region.save(update_fields=["label"])
    elif not created:
        return region
    record(
        action="region.register", subject=name, tenant_id=None, actor=actor, reason=reason,
        before=before, after={"label": region.label},
    )  # fmt: skip
    return region
