"""Operators subscribe the same way, in pages of their own."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from controlplane.notifications import sending
from controlplane.notifications.models import Delivery, NotificationRule
from controlplane.tenants.models import User
from tests.component.controlplane.factories import MembershipFactory, TenantFactory
from tests.component.controlplane.notifications.conftest import made, told
from tests.component.controlplane.notifications.receiver import Receiver
from tests.component.controlplane.signed import operator, tenant_admin

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(control: None) -> Client:
    staff = User.objects.create_user("op@example.com", "operator password", is_staff=True)
    client = Client()
    client.force_login(staff)
    return client


def test_made_tried_and_sent_again(client: Client, receiver: Receiver) -> None:
    pages = reverse("operators:notifications")
    assert "told of nothing yet" in client.get(pages).content.decode()
    wrong = client.post(pages, {"name": "", "channel": "WEBHOOK", "url": "x", "digest_minutes": "0"})
    assert wrong.status_code == 422
    for said in ("name: 1 to 120", "kinds: at least one", "url: neither http nor https"):
        assert said in wrong.content.decode(), said
    tenant = TenantFactory()
    body = {
        "name": "all of it", "kinds": ["run.dead_lettered", "cell.silent"], "channel": "WEBHOOK",
        "url": receiver.url, "digest_minutes": "0", "tenant_ids": tenant.public_id, "enabled": "on",
    }  # fmt: skip
    answer = client.post(pages, body, follow=True)
    assert re.search(r"whsec_", answer.content.decode())
    rule = NotificationRule.objects.get(tenant=None)
    assert rule.filters == {"tenant_ids": [tenant.public_id]}
    here = reverse("operators:notification", args=(rule.public_id,))
    assert "whsec_" not in client.get(here).content.decode()
    assert told(tenant) == 1
    assert told(TenantFactory()) == 0
    sending.drain(5)
    delivery = Delivery.objects.get()
    client.post(reverse("operators:notification-redeliver", args=(delivery.public_id,)))
    sending.drain(5)
    assert len({got.id for got in receiver.got}) == 1
    assert len(receiver.got) == 2
    rotated = client.post(reverse("operators:notification-act", args=(rule.public_id, "rotate")))
    assert "whsec_" in rotated.content.decode()
    assert "no-store" in rotated["Cache-Control"]
    for verb in ("test", "disable", "enable"):
        assert (
            client.post(reverse("operators:notification-act", args=(rule.public_id, verb))).status_code == 302
        )
    rule.refresh_from_db()
    assert rule.enabled
    assert rule.sealed_old_secret is not None
    client.post(reverse("operators:notification-act", args=(rule.public_id, "remove")))
    assert not NotificationRule.objects.exists()


def test_tenants_rules_are_not_theirs_and_nobody_else_gets_in(client: Client) -> None:
    theirs = made(TenantFactory(), url="http://127.0.0.1:9/").rule
    assert client.get(reverse("operators:notification", args=(theirs.public_id,))).status_code == 404
    stranger = Client()
    stranger.force_login(MembershipFactory().user)
    assert stranger.get(reverse("operators:notifications")).status_code == 302


def test_the_api_says_every_fault(control: None) -> None:
    body = {
        "name": "", "kinds": ["run.dead_lettered", "run.dead_lettered", "cell.silent"], "channel": "EMAIL",
        "url": "http://127.0.0.1:9/", "emails": ["nobody@example.com"], "digest_minutes": 5000,
        "filters": {"tenant_ids": ["tnt_x"]},
    }  # fmt: skip
    tenant = TenantFactory()
    answer = tenant_admin(tenant).post("/v1/notification-rules", body)
    assert answer.status == 422
    faults = {fault["pointer"] for fault in answer.json["errors"]}
    assert faults == {
        "/name", "/kinds/2", "/kinds", "/filters/tenant_ids", "/digest_minutes", "/url", "/emails/0",
    }  # fmt: skip
    unknown = tenant_admin(tenant).post("/v1/notification-rules", {**body, "nonsense": 1})
    assert {"pointer": "/nonsense", "detail": "Unknown field."} in unknown.json["errors"]
    # Operators may ask for what tenants may not.
    mine = {"name": "cells", "kinds": ["cell.silent"], "channel": "WEBHOOK", "url": "http://127.0.0.1:9/"}
    made_ = operator().post("/v1/admin/notification-rules", mine)
    assert (made_.status, made_.headers["Cache-Control"]) == (201, "no-store")
    assert made_.json["secret"].startswith("whsec_")
    path = f"/v1/admin/notification-rules/{made_.json['rule_id']}"
    assert "secret" not in operator().get(path).json
    stale = operator().patch(path, {"enabled": False}, headers={"If-Match": '"7"'})
    assert stale.status == 412
