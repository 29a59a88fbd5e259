"""The page where owners have their workspace erased, and the link that fetches the certificate."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.custody import certificates, erasing
from controlplane.custody.models import Erasure
from controlplane.tenants.models import ApiKey, User
from tests.component.controlplane.console.conftest import Signed, sign_in
from tests.component.controlplane.signed import operator, tenant_admin

pytestmark = pytest.mark.django_db


def test_asked_for_cancelled_and_done(owner: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    here, browser = owner.base + "/settings/erasure", owner.browser
    slug = owner.base.rpartition("/")[2]
    assert f"Type <code>{slug}</code>" in browser.get(here).content.decode()
    wrong = browser.post(here, {"confirm": "another"})
    assert (wrong.status_code, Erasure.objects.count()) == (422, 0)
    asked = browser.post(here, {"confirm": slug, "reason": "no more"})
    assert (asked.status_code, asked["Cache-Control"]) == (200, "no-store")
    assert "Cancel the erasure" in asked.content.decode()
    assert "erasures/ers_" not in browser.get(here).content.decode()  # the link is shown once
    assert browser.post(here + "/cancel").status_code == 302
    assert Erasure.objects.get().state == "CANCELLED"
    found = re.search(r"(/erasures/ers_\w+/[\w-]+)", browser.post(here, {"confirm": slug}).content.decode())
    assert found is not None
    link, stranger = found[1], Client()
    assert "It begins" in stranger.get(link).content.decode()
    assert stranger.get(link[:-3]).status_code == 404
    # Only the control plane is looked at here: no cell takes part.
    monkeypatch.setattr(erasing, "STEPS", tuple(s for s in erasing.STEPS if s[0] != "cells"))
    Erasure.objects.filter(state="REQUESTED").update(due_at=timezone.now() - timedelta(seconds=1))
    assert erasing.run(Erasure.objects.get(state="REQUESTED").pk)
    assert browser.get(here).status_code == 404
    assert "Everything is erased" in stranger.get(link).content.decode()
    certificate = json.loads(stranger.post(link).content)
    assert certificates.is_genuine(certificate)
    assert stranger.post(link).status_code == 409
    keys = stranger.get("/erasures/keys").json()["keys"]
    assert certificate["signature"]["key_id"] in [key["key_id"] for key in keys]


@pytest.mark.parametrize("role", ["admin", "viewer"])
def test_owners_only(owner: Signed, role: str) -> None:
    person = sign_in(role)
    for path in ("/settings/erasure", "/settings/erasure/cancel"):
        assert person.browser.post(person.base + path).status_code == 403
    assert not Erasure.objects.exists()


def test_by_the_api_and_by_operators(owner: Signed) -> None:
    slug = owner.base.rpartition("/")[2]
    tenant = owner.membership.tenant
    admin, operators = tenant_admin(tenant), operator()
    key_id = admin.caller.actor.removeprefix("key:")
    ApiKey.objects.create(id=key_id, tenant=tenant, name="x", sha256="0" * 64, scopes=["admin"])
    assert admin.post("/v1/tenant/erasure", {"confirm": slug}).status == 403  # nobody knows who made it
    ApiKey.objects.filter(pk=key_id).update(created_by=owner.membership.user.actor_name)
    shown = admin.get("/v1/tenant/erasure").json
    assert (shown["plan"]["slug"], shown["erasure"]) == (slug, None)
    assert admin.post("/v1/tenant/erasure", {"confirm": "x"}).status == 422
    made = admin.post("/v1/tenant/erasure", {"confirm": slug})
    assert (made.status, made.json["state"]) == (202, "REQUESTED")
    path = f"/v1/admin/erasures/{made.json['erasure_id']}"
    assert operators.get(path).json["steps_done"] == 0
    assert operators.get(path + "/certificate").status == 409
    assert admin.post("/v1/tenant/erasure:cancel", {}).json["state"] == "CANCELLED"
    assert operators.post(path + ":cancel", {}).status == 200
    again = operators.post("/v1/admin/erasures", {"tenant_id": tenant.public_id, "confirm": slug})
    assert (again.status, len(operators.get("/v1/admin/erasures").json["items"])) == (202, 2)
    staff = User.objects.create_user("staff@example.com", "x", is_staff=True, is_superuser=True)
    browser = Client()
    browser.force_login(staff)
    listed: Any = browser.get(f"/admin/pages/erasures/?tenant={slug}")
    assert again.json["erasure_id"] in listed.content.decode()
    cancel = f"/admin/pages/erasures/{again.json['erasure_id']}/cancel"
    assert browser.post(cancel).status_code == 302
    posted: Any = browser.post(
        "/admin/pages/erasures/", {"tenant": slug, "confirm": slug, "reason": "they asked"}
    )
    assert posted.status_code == 200
    assert "no-store" in posted["Cache-Control"]
