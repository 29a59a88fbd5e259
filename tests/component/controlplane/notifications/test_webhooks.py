"""Messages reach a real receiver: signed, each at least once and under one id, however it behaves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core import mail
from standardwebhooks import Webhook

from controlplane.errors import Conflicting
from controlplane.events.models import AuditEvent, OutboxItem
from controlplane.notifications import rules
from controlplane.notifications.mails import STOPPED, mail_stopped
from controlplane.notifications.models import Delivery, DeliveryAttempt, NotificationRule
from tests.component.controlplane.factories import ACTOR, REASON, MembershipFactory, TenantFactory
from tests.component.controlplane.notifications.conftest import due_now, made, sent, told
from tests.component.controlplane.notifications.receiver import Receiver

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _control(control: None) -> None:
    """Both databases."""


def _only() -> Delivery:
    return Delivery.objects.get()


def test_an_event_arrives_signed_and_once(receiver: Receiver) -> None:
    tenant = TenantFactory()
    rule = made(tenant, url=receiver.url + "?team=a")
    assert rule.secret is not None
    assert told(tenant, "evt_1_2_3") == 1
    assert told(tenant, "evt_1_2_3") == 0, "the same event again"
    assert sent() == 1
    assert sent() == 0
    (got,) = receiver.got
    document = Webhook(rule.secret).verify(got.body, got.headers)
    assert (document["id"], document["type"]) == ("evt_1_2_3", "clockhouse.run.dead_lettered")
    assert document["tenantid"] == tenant.public_id
    assert got.headers["content-type"] == "application/cloudevents+json"
    assert got.path == "/hook?team=a"
    delivery = _only()
    assert (delivery.state, delivery.attempts, delivery.last_status) == ("DELIVERED", 1, 204)
    assert got.id == delivery.public_id
    assert delivery.tries.get().status == 204


def test_others_hear_nothing(receiver: Receiver) -> None:
    tenant, other = TenantFactory(), TenantFactory()
    made(other, url=receiver.url, kinds=["*"])
    made(tenant, url=receiver.url, enabled=False)
    assert told(tenant) == 0
    assert not Delivery.objects.exists()


def test_operators_hear_of_all_and_tenants_not_of_operators(receiver: Receiver) -> None:
    tenant, other = TenantFactory(), TenantFactory()
    made(None, url=receiver.url, kinds=["*"], filters={"tenant_ids": [tenant.public_id]})
    made(tenant, url=receiver.url, kinds=["*"])
    assert told(tenant) == 2
    assert told(other) == 0
    assert told(tenant, kind="cell.state_changed") == 1, "the operators only"


def test_it_is_sent_again_until_it_arrives(receiver: Receiver) -> None:
    tenant = TenantFactory()
    made(tenant, url=receiver.url)
    receiver.answers = [500, (503, {"Retry-After": "900"}), 302]
    told(tenant)
    pauses = []
    for _ in range(3):
        assert sent() == 1
        assert sent() == 0, "not before its time"
        pauses.append(_only().due_at - datetime.now(UTC))
        due_now()
    assert sent() == 1
    assert timedelta(seconds=3) < pauses[0] < timedelta(seconds=7)
    assert timedelta(seconds=890) < pauses[1] <= timedelta(seconds=900)
    assert len({got.id for got in receiver.got}) == 1
    assert len({got.body for got in receiver.got}) == 1
    tries = list(DeliveryAttempt.objects.order_by("n").values_list("n", "status", "error"))
    assert tries == [
        (1, 500, "answered 500"), (2, 503, "answered 503"),
        (3, 302, "answered 302: redirects are not followed"), (4, 204, ""),
    ]  # fmt: skip
    assert _only().tries.get(n=1).response == "said\n"
    assert _only().state == "DELIVERED"
    assert NotificationRule.objects.get().failures == 0


def test_a_receiver_that_fails_is_asked_by_one_message_at_a_time(receiver: Receiver) -> None:
    tenant = TenantFactory()
    made(tenant, url=receiver.url)
    receiver.answers = [500] * 2
    for _ in range(6):
        told(tenant)
    first = sent()
    assert 1 <= first <= 2, "two were under way at most"
    NotificationRule.objects.update(held_until=None)
    receiver.answers = [500]
    assert sent() == 1, "while it fails, one asks whether it works again"
    assert NotificationRule.objects.get().held_until is not None
    due_now()
    assert sent() == 6
    assert not Delivery.objects.exclude(state="DELIVERED").exists()


def test_no_answer_after_it_was_taken(receiver: Receiver, settings: Any) -> None:
    settings.NOTIFICATIONS = {**settings.NOTIFICATIONS, "patience_seconds": 0.3}
    tenant = TenantFactory()
    made(tenant, url=receiver.url)
    receiver.before_answer = lambda got: None if len(receiver.got) > 1 else _wait(receiver)
    told(tenant)
    assert sent() == 1
    assert _only().last_error == "no answer in time"
    due_now()
    assert sent() == 1
    first, second = receiver.got
    assert (first.id, first.body) == (second.id, second.body), "the receiver knows it has got it"
    assert _only().state == "DELIVERED"


def _wait(receiver: Receiver) -> None:
    receiver.released.wait(30)


def test_a_slow_receiver_holds_up_nobody_else(receiver: Receiver, settings: Any) -> None:
    settings.NOTIFICATIONS = {**settings.NOTIFICATIONS, "patience_seconds": 5}
    slow, quick = TenantFactory(), TenantFactory()
    with Receiver() as other:
        made(slow, url=receiver.url)
        made(quick, url=other.url)
        receiver.before_answer = _wait_for(other, receiver, 20)
        for _ in range(5):
            told(slow)
        for _ in range(20):
            told(quick)
        sent()
        assert len(other.got) == 20
    assert not Delivery.objects.exclude(state="DELIVERED").exists()


def _wait_for(other: Receiver, receiver: Receiver, count: int) -> Any:
    """The slow one answers only once the other has got all."""

    def before_answer(got: Any) -> None:
        while len(other.got) < count and not receiver.released.wait(0.01):
            pass

    return before_answer


def test_dead_after_a_day_and_then_stopped(receiver: Receiver) -> None:
    tenant = TenantFactory()
    owner = MembershipFactory(tenant=tenant, role="owner")
    made(tenant, url=receiver.url)
    receiver.answers = [500, 500]
    told(tenant)
    sent()
    Delivery.objects.update(give_up_at=datetime.now(UTC))
    due_now()
    sent()
    assert _only().state == "DEAD"
    rule = NotificationRule.objects.get()
    assert not rule.enabled
    assert rule.stopped_because == "nothing could be delivered for a day: answered 500"
    assert AuditEvent.objects.filter(action="notification_rule.stop", tenant_id=tenant.id).exists()
    mail_stopped(OutboxItem.objects.get(topic=STOPPED).subject)
    (letter,) = mail.outbox
    assert letter.to == [owner.user.email]
    assert f"/t/{tenant.slug}/settings/notifications/{rule.public_id}/" in letter.body
    # Mended: it goes out again under its id.
    rules.edit_rule(
        tenant_id=tenant.id, rule_id=rule.id, changes={"enabled": True}, actor=ACTOR, reason=REASON
    )
    rules.redeliver(tenant_id=tenant.id, delivery_id=_only().id, actor=ACTOR, reason=REASON)
    assert sent() == 1
    assert _only().state == "DELIVERED"
    assert len({got.id for got in receiver.got}) == 1


def test_gone_stops_the_rule_at_once(receiver: Receiver) -> None:
    tenant = TenantFactory()
    made(tenant, url=receiver.url)
    receiver.answers = [410]
    told(tenant)
    sent()
    assert _only().state == "DEAD"
    assert NotificationRule.objects.get().stopped_because == "its receiver answered 410 Gone"


def test_private_addresses_are_not_called(receiver: Receiver, settings: Any) -> None:
    tenant = TenantFactory()
    made(tenant, url=receiver.url.replace("127.0.0.1", "localhost"))
    settings.NOTIFICATIONS = {**settings.NOTIFICATIONS, "egress_allow": frozenset()}
    told(tenant)
    sent()
    assert not receiver.got
    assert _only().state == "DEAD"
    assert "a loopback address" in _only().last_error


def test_secrets_overlap(receiver: Receiver) -> None:
    tenant = TenantFactory()
    first = made(tenant, url=receiver.url)
    again = rules.rotate_secret(
        tenant_id=tenant.id, rule_id=first.rule.id, overlap=timedelta(hours=1), actor=ACTOR, reason=REASON
    )
    with pytest.raises(Conflicting, match="two secrets sign until"):
        rules.rotate_secret(tenant_id=tenant.id, rule_id=first.rule.id, actor=ACTOR, reason=REASON)
    told(tenant)
    sent()
    NotificationRule.objects.update(old_secret_until=datetime.now(UTC))
    told(tenant)
    sent()
    both, newest = receiver.got
    assert first.secret != again.secret
    for secret in (first.secret, again.secret):
        assert secret is not None
        Webhook(secret).verify(both.body, both.headers)
    assert again.secret is not None
    Webhook(again.secret).verify(newest.body, newest.headers)
    assert len(newest.headers["webhook-signature"].split()) == 1


def test_a_digest_collects(receiver: Receiver) -> None:
    tenant = TenantFactory()
    made(tenant, url=receiver.url, digest_minutes=10)
    for n in range(3):
        told(tenant, f"evt_{n}")
    assert told(tenant, "evt_1") == 0
    assert sent() == 0, "its time has not come"
    assert (_only().state, _only().events) == ("COLLECTING", 3)
    due_now()
    assert sent() == 1
    told(tenant, "evt_9")
    assert sent() == 0
    assert Delivery.objects.filter(state="COLLECTING", events=1).count() == 1, "another begins"
    (got,) = receiver.got
    assert [one["id"] for one in got.document] == ["evt_0", "evt_1", "evt_2"]
    assert got.headers["content-type"] == "application/cloudevents-batch+json"


def test_a_full_digest_goes_at_once(receiver: Receiver) -> None:
    tenant = TenantFactory()
    made(tenant, url=receiver.url, digest_minutes=60)
    for _ in range(60):
        told(tenant)
    assert sent() == 1
    assert len(receiver.got[0].document) == 50
    assert Delivery.objects.get(state="COLLECTING").events == 10


def test_mail_goes_to_members_only(receiver: Receiver) -> None:
    tenant = TenantFactory()
    member = MembershipFactory(tenant=tenant)
    made(tenant, channel="EMAIL", emails=[member.user.email])
    told(tenant)
    assert sent() == 1
    (letter,) = mail.outbox
    assert letter.to == [member.user.email]
    assert letter.subject == f"{tenant.name}: A run failed for good at tgt_x: HTTP 500"
    assert letter.extra_headers["Message-ID"] == f"<{_only().public_id}@clockhouse>"
    member.delete()
    told(tenant)
    sent()
    assert len(mail.outbox) == 1
    rule = NotificationRule.objects.get()
    assert not rule.enabled
    assert rule.stopped_because == "none of its addresses is a member's any more"


def test_the_button(receiver: Receiver) -> None:
    tenant = TenantFactory()
    rule = made(tenant, url=receiver.url, enabled=False, digest_minutes=5).rule
    delivery = rules.test_rule(tenant_id=tenant.id, rule_id=rule.id, actor=ACTOR, reason=REASON)
    assert sent() == 1
    assert receiver.got[0].document["type"] == "clockhouse.notification.test"
    assert receiver.got[0].id == delivery.public_id
