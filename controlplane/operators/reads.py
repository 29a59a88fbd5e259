"""That operators looked at a tenant: in its audit log, once for each operator, tenant and hour.

A page about one tenant is a read of it, and so is a list narrowed to one. A list over all tenants is the
operators' own register, and no read of anybody's data.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from controlplane.actors import Actor
from controlplane.events.recording import record
from controlplane.identity import TENANT, encode
from controlplane.operators.models import OperatorRead
from controlplane.tenants.models import Tenant

#: Hours that were told are remembered for so long; no clock is that wrong.
_REMEMBERED = timedelta(days=1)


@transaction.atomic
def record_read(*, tenant_id: uuid.UUID, actor: Actor, what: str) -> bool:
    """Says in the tenant's audit log that an operator reads of it, with the first thing (`what`: a path)
    that they read in this hour. False: it was said for this hour already, or there is no such tenant."""
    if not Tenant.objects.filter(pk=tenant_id).exists():
        return False
    now = timezone.now()
    hour = now.replace(minute=0, second=0, microsecond=0)
    _, first = OperatorRead.objects.get_or_create(operator=actor.name, tenant_id=tenant_id, hour=hour)
    if first:
        record(
            action="operator.read", subject=encode(TENANT, tenant_id), tenant_id=tenant_id, actor=actor,
            reason="", after={"first": what[:200], "hour": hour.isoformat()},
        )  # fmt: skip
        OperatorRead.objects.filter(hour__lt=now - _REMEMBERED).delete()
    return first
