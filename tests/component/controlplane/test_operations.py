"""Health, readiness, metrics; signing in."""

from __future__ import annotations

import pytest
from django.test import Client

from controlplane.ownership.postgres import PostgresOwnershipStore
from tests.component.controlplane.factories import MembershipFactory, TenantFactory

pytestmark = pytest.mark.django_db


def test_alive_and_ready(control: None) -> None:
    client = Client()
    assert client.get("/healthz").content == b"ok\n"
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"database": "ok", "ownership": "ok"})


def test_ready_without_the_ownership_store(control: None, monkeypatch: pytest.MonkeyPatch) -> None:
    away = PostgresOwnershipStore("postgresql://nobody@127.0.0.1:1/none", timeout_seconds=0.2)
    monkeypatch.setattr("controlplane.operations.installed_store", lambda: away)
    ready = Client().get("/readyz")
    away.close()
    assert (ready.status_code, ready.json()["ownership"]) == (200, "OwnershipUnavailable")


def test_metrics_say_what_is_waiting(control: None) -> None:
    TenantFactory()
    lines = Client().get("/metrics").content.decode().splitlines()
    assert "control_outbox_items 1.0" in lines
    assert "control_unconfirmed_tenants 1.0" in lines
    assert "billing_open_meter_conflicts 0.0" in lines
    assert "control_evacuations_open 0.0" in lines


def test_people_sign_in_by_email_and_nobody_signs_up(control: None) -> None:
    member = MembershipFactory()
    client = Client()
    wrong = client.post("/accounts/login/", {"login": member.user.email, "password": "wrong"})
    assert wrong.status_code == 200
    right = client.post("/accounts/login/", {"login": member.user.email.upper(), "password": "correct horse"})
    assert (right.status_code, right["Location"]) == (302, "/")
    fresh = {"email": "new@example.com", "password1": "a long password", "password2": "a long password"}
    Client().post("/accounts/signup/", fresh)
    from controlplane.tenants.models import User

    assert not User.objects.filter(email="new@example.com").exists()
