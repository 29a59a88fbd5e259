"""Whom a bill is for, as billing asks for it. Billing's settings name `people_of`."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection

from controlplane.tenants.models import Membership, Tenant
from controlplane.tenants.roles import Role


def people_of(tenants: Collection[uuid.UUID]) -> dict[uuid.UUID, tuple[str, list[str]]]:
    """The name of each tenant and the addresses of its owners; those that are none are left out."""
    owners = Membership.objects.filter(tenant_id__in=tenants, role=Role.OWNER, user__is_active=True)
    emails: dict[uuid.UUID, list[str]] = defaultdict(list)
    for tenant_id, email in owners.order_by("user__email").values_list("tenant_id", "user__email"):
        emails[tenant_id].append(email)
    names = Tenant.objects.filter(pk__in=tenants).values_list("pk", "name")
    return {tenant_id: (name, emails.get(tenant_id, [])) for tenant_id, name in names}
