"""Whom a bill is for, as billing asks for it. Billing's settings name `people_of`."""

from __future__ import annotations

import uuid

from controlplane.tenants.models import Membership, Tenant
from controlplane.tenants.roles import Role


def people_of(tenant_id: uuid.UUID) -> tuple[str, list[str]]:
    """A tenant's name and the addresses of its owners; empty if there is no such tenant."""
    name = Tenant.objects.filter(pk=tenant_id).values_list("name", flat=True).first()
    owners = Membership.objects.filter(tenant_id=tenant_id, role=Role.OWNER, user__is_active=True)
    return name or "", sorted(owners.values_list("user__email", flat=True))
