"""What follows every change of a tenant: a new version, told to routers and to its cell."""

from __future__ import annotations

from controlplane.events.models import Change
from controlplane.events.recording import publish, want
from controlplane.tenants.models import Tenant
from controlplane.topology.push import TOPIC


def tenant_changed(tenant: Tenant) -> None:
    """Call with the tenant locked; saves its new version."""
    tenant.version += 1
    tenant.save()
    announce(tenant)


def announce(tenant: Tenant) -> None:
    """Tells routers and the tenant's cell, once this commits."""
    publish(Change.Kind.TENANT, tenant.public_id)
    want(topic=TOPIC, subject=str(tenant.id))
