"""A tenant's own people pause all of its work: its cell is told, and it is in the audit log."""

from __future__ import annotations

import pytest

from controlplane.actors import service
from controlplane.events.models import AuditEvent
from controlplane.tenants.actions.tenants import pause_work, resume_work
from controlplane.topology.push import config_of
from tests.component.controlplane.factories import TenantFactory

pytestmark = pytest.mark.django_db


def test_a_pause_reaches_the_cell_and_the_audit_log(control: None) -> None:
    tenant = TenantFactory()
    assert config_of(tenant)["paused"] is False
    paused = pause_work(tenant_id=tenant.id, actor=service("tests"), reason="a storm")
    assert (paused.version, config_of(paused)["paused"]) == (tenant.version + 1, True)
    again = pause_work(tenant_id=tenant.id, actor=service("tests"), reason="again")
    assert (again.version, again.paused_at) == (paused.version, paused.paused_at)
    resumed = resume_work(tenant_id=tenant.id, actor=service("tests"), reason="over")
    assert (resumed.version, resumed.paused_at, config_of(resumed)["paused"]) == (
        tenant.version + 2,
        None,
        False,
    )
    verbs = AuditEvent.objects.filter(tenant_id=tenant.id, action__endswith="_work").order_by("id")
    assert list(verbs.values_list("action", "reason")) == [
        ("tenant.pause_work", "a storm"),
        ("tenant.resume_work", "over"),
    ]
