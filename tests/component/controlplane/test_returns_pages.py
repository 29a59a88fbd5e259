"""The operators' page of regions that came back, and a tenant's report as a file."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from controlplane.events.models import AuditEvent
from controlplane.tenants.models import User
from tests.component.controlplane.factories import CellFactory, TenantFactory
from tests.component.controlplane.standin import StandInCell

pytestmark = pytest.mark.django_db


def test_what_came_back_is_shown_for_each_cell_and_tenant(control: None) -> None:
    staff = User.objects.create_user("op@example.com", "operator password", is_staff=True)
    client = Client()
    client.force_login(staff)
    page = reverse("operators:returns")
    assert "No cell is registered" in client.get(page).content.decode()
    name = CellFactory.name.function()
    with StandInCell(name, bytes(range(32))) as cell:
        CellFactory(name=name, url=cell.url)
        assert "none has come back yet" in client.get(page).content.decode()
        tenant = TenantFactory()
        entry = {"tenant_id": tenant.public_id, "region": "east", "entries": 3}
        cell.returns = {
            "items": [
                {
                    "region": "east", "epoch": 7, "began_at": "2026-11-30T06:00:00Z", "read_at": None,
                    "transactions": 12, "entries": 9, "dropped": 0,
                }
            ],
            "tenants": [
                {**entry, "kind": "CLAIMED", "outcome": "REPEATED"},
                {**entry, "kind": "FINISHED", "outcome": "NOT_REPEATED"},
                {**entry, "kind": "INTENT", "outcome": "CHANGED_SINCE"},
            ],
        }  # fmt: skip
        shown = client.get(page).content.decode()
        for text in ("east", "not yet", tenant.name):
            assert text in shown
        lines: list[dict[str, Any]] = [{"id": "job_1"}, {"id": "job_2"}]
        cell.reconciliation = lines
        file = client.get(reverse("operators:return-file", args=[tenant.slug]))
        got = b"".join(file.streaming_content)  # type: ignore[attr-defined]
        assert [json.loads(line) for line in got.splitlines()] == lines
        assert AuditEvent.objects.filter(action="operator.read", tenant_id=tenant.id).count() == 1
        cell.failing = True
        assert "503" in client.get(page).content.decode()
        assert client.get(reverse("operators:return-file", args=[tenant.slug])).status_code == 302
