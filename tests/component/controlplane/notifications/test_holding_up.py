"""No receiver, rule or message holds up what others are to hear."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from controlplane.errors import Conflicting, NotFound
from controlplane.notifications import rules, sending, tasks
from controlplane.notifications.models import DeliveredEvent, Delivery, DeliveryAttempt, NotificationRule
from controlplane.notifications.telling import wake_at_commit
from controlplane.notifications.webhooks import Outcome, connected, post
from tests.component.controlplane.factories import ACTOR, REASON, MembershipFactory, TenantFactory
from tests.component.controlplane.notifications.conftest import due_now, made, sent, told
from tests.component.controlplane.notifications.receiver import Receiver
from tests.waiting import eventually_sync

pytestmark = pytest.mark.django_db
_LOOPBACK = frozenset({"loopback"})


@pytest.fixture(autouse=True)
def _control(control: None) -> None:
    """Both databases."""


@contextmanager
def _machine(*, answers: bool) -> Iterator[tuple[int, list[socket.socket]]]:
    """A port that takes connections: it closes them at once, or says nothing at all."""
    taken: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def serve() -> None:
        while True:
            try:
                made, _ = listener.accept()
            except OSError:
                return
            taken.append(made)
            if answers:
                made.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], taken
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for each in taken:
            each.close()


def test_of_many_addresses_few_are_tried() -> None:
    with _machine(answers=True) as (port, taken):
        address = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))
        with pytest.raises(OSError, match=r"."):
            connected(
                "many.example", [address] * 50, until=time.monotonic() + 60, secure=True, allow=_LOOPBACK
            )
        eventually_sync(lambda: len(taken) == 3)


def test_tls_that_never_comes_is_within_the_time() -> None:
    with _machine(answers=False) as (port, _):
        outcome = post(f"https://127.0.0.1:{port}/", {}, b"{}", allow=_LOOPBACK, patience=0.2)
    assert outcome.error == "no answer in time"
    assert outcome.ms < 4500, "it had five seconds of its own"


@pytest.mark.parametrize("host", ["fd00::84e5", "fd00::1111"])
def test_an_ipv6_address_without_a_port(host: str) -> None:
    outcome = post(f"http://[{host}]/", {}, b"{}", allow=())
    assert (outcome.error, outcome.for_good) == (f"not called: {host} is a private address", True)


def test_what_never_ends_is_left_behind(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mail server that never says a word, without a limit of its own."""
    monkeypatch.setattr(sending, "_GRACE", 0.1)
    tenant = TenantFactory()
    member = MembershipFactory(tenant=tenant)
    made(tenant, channel="EMAIL", emails=[member.user.email])
    with _machine(answers=False) as (port, taken):
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_TIMEOUT = "127.0.0.1", port, None
        settings.NOTIFICATIONS = {**settings.NOTIFICATIONS, "patience_seconds": 0.1}
        told(tenant)
        assert sending.drain(0.2) == 0
        assert len(taken) == 1
        assert Delivery.objects.get().leased_until > timezone.now()


def test_a_rule_is_removed_while_its_message_is_under_way(receiver: Receiver) -> None:
    tenant, other = TenantFactory(), TenantFactory()
    rule = made(tenant, url=receiver.url).rule
    made(other, url=receiver.url)
    told(tenant)
    told(other)
    messages = sending.take(10)
    rules.remove_rule(tenant_id=tenant.id, rule_id=rule.id, actor=ACTOR, reason=REASON)
    for message in messages:
        sending.note(message, Outcome(ms=1, status=204))
    connection.check_constraints()
    # Until it is gone bit by bit, nobody meets what it left.
    for left in Delivery.objects.filter(rule_id=rule.id):
        with pytest.raises(NotFound):
            rules.redeliver(tenant_id=tenant.id, delivery_id=left.pk, actor=ACTOR, reason=REASON)
    tasks.prune()
    connection.check_constraints()
    assert NotificationRule.everything.filter(tenant=tenant).count() == 0
    assert DeliveryAttempt.objects.count() == 1
    assert list(Delivery.objects.values_list("rule__tenant", "state")) == [(other.id, "DELIVERED")]


def test_a_message_keeps_its_form(receiver: Receiver) -> None:
    tenant = TenantFactory()
    rule = made(tenant, url=receiver.url, digest_minutes=10).rule
    for _ in range(3):
        told(tenant)
    _edit(rule, digest_minutes=0)
    told(tenant)
    _edit(rule, digest_minutes=10)
    due_now()
    assert sent() == 2
    sizes = sorted(len(got.document) if isinstance(got.document, list) else 0 for got in receiver.got)
    assert sizes == [0, 3], "the digest has all its events, and the other was made alone"


def _edit(rule: NotificationRule, **changes: Any) -> None:
    rules.edit_rule(tenant_id=rule.tenant_id, rule_id=rule.id, changes=changes, actor=ACTOR, reason=REASON)


def test_a_message_that_cannot_be_prepared_is_a_try_that_failed(receiver: Receiver) -> None:
    tenant, other = TenantFactory(), TenantFactory()
    rule = made(tenant, url=receiver.url).rule
    made(other, url=receiver.url)
    told(tenant)
    told(other)
    NotificationRule.objects.filter(pk=rule.pk).update(sealed_secret=b"no secret at all")
    assert sent() == 1
    assert len(receiver.got) == 1
    broken = Delivery.objects.get(rule=rule)
    assert broken.last_error.startswith("it could not be prepared: ")
    assert (broken.state, broken.lease, broken.tries.count()) == ("WAITING", None, 1)
    assert broken.due_at > timezone.now()


def test_a_message_whose_content_is_gone(receiver: Receiver) -> None:
    tenant = TenantFactory()
    made(tenant, url=receiver.url)
    told(tenant)
    DeliveredEvent.objects.all().delete()
    sent()
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.last_error) == ("DEAD", "what was in it is kept no more")
    with pytest.raises(Conflicting, match="kept no more"):
        rules.redeliver(tenant_id=tenant.id, delivery_id=delivery.id, actor=ACTOR, reason=REASON)


def test_old_messages_are_forgotten_with_what_was_in_them(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_PAGE", 1)
    tenant = TenantFactory()
    made(tenant, url=receiver.url)
    told(tenant)
    told(tenant)
    sent()
    Delivery.objects.update(created_at=timezone.now() - timedelta(days=31))
    tasks.prune()
    connection.check_constraints()
    (left,) = Delivery.objects.all()
    assert (left.contents.count(), left.tries.count()) == (1, 1), "a page takes messages whole"
    tasks.prune()
    assert not Delivery.objects.exists()
    assert not DeliveryAttempt.objects.exists()


def test_one_tenant_has_few_places_and_others_come_first() -> None:
    many, other = TenantFactory(), TenantFactory()
    for n in range(8):
        made(many, url="http://127.0.0.1:9/", name=f"rule {n}")
    made(other, url="http://127.0.0.1:9/")
    for _ in range(3):
        told(many)
    told(other)
    first = sending.take(3)
    assert [message.delivery.rule.tenant_id for message in first].count(other.id) == 1
    rest = sending.take(24)
    taken = [message.delivery.rule.tenant_id for message in [*first, *rest]]
    assert (taken.count(many.id), taken.count(other.id)) == (sending.TOGETHER, 1)
    assert sending.take(24) == []
    sending.note(first[0], Outcome(ms=1, status=204))
    assert len(sending.take(24)) <= 1


def test_however_much_is_told_those_who_send_are_woken_once(receiver: Receiver) -> None:
    tenant = TenantFactory()
    made(tenant, url=receiver.url)
    for _ in range(5):
        told(tenant)
    wake_at_commit()
    names = [getattr(callback, "__name__", "") for _, callback, *_ in connection.run_on_commit]
    assert names.count("_wake") == 1


def test_what_a_disabled_rule_has_not_sent_is_not_told_later(receiver: Receiver) -> None:
    tenant = TenantFactory()
    rule = made(tenant, url=receiver.url).rule
    told(tenant)
    told(tenant)
    (under_way,) = sending.take(1)
    _edit(rule, enabled=False)
    assert Delivery.objects.exclude(pk=under_way.delivery.pk).get().last_error == "its rule was disabled"
    assert sending.waiting()["waiting"] == 0
    sending.note(under_way, Outcome(ms=1, status=500, error="answered 500"))
    assert set(Delivery.objects.values_list("state", flat=True)) == {"DEAD"}
    _edit(rule, enabled=True)
    due_now()
    assert sent() == 0
