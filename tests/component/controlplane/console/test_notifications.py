"""Pages about notification rules: everything that is wrong at once, secrets once, nothing of others."""

from __future__ import annotations

import re

import pytest

from controlplane.notifications import sending
from controlplane.notifications.models import Delivery, NotificationRule
from tests.component.controlplane.console.conftest import Signed, sign_in
from tests.component.controlplane.contents import contents
from tests.component.controlplane.notifications.receiver import Receiver

pytestmark = pytest.mark.django_db
_BASE = "/settings/notifications/"


def _typed(**more: object) -> dict[str, object]:
    return {
        "name": "on call", "kinds": ["run.dead_lettered"], "channel": "WEBHOOK",
        "url": "http://127.0.0.1:9/hook", "digest_minutes": "0", "enabled": "on", "token": "once",
        "name_prefix": "", "tags": "", "target_ids": "", **more,
    }  # fmt: skip


def _made(person: Signed, **more: object) -> NotificationRule:
    answer = person.browser.post(person.base + _BASE + "new", _typed(**more))
    assert answer.status_code in (200, 302), answer.content.decode()[:2000]
    return NotificationRule.objects.latest("created_at")


def test_the_empty_list_teaches(owner: Signed) -> None:
    page = owner.browser.get(owner.base + _BASE).content.decode()
    assert "Make the first rule" in page
    assert "clockhouse notifications create" in page


def test_made_shown_edited_removed(owner: Signed) -> None:
    answer = owner.browser.post(owner.base + _BASE + "new", _typed(tags="prod, eu"))
    page = answer.content.decode()
    assert re.search(r"whsec_[A-Za-z0-9+/=]{44}", page)
    rule = NotificationRule.objects.get()
    assert rule.filters == {"tags": ["prod", "eu"]}
    here = f"{owner.base}{_BASE}{rule.public_id}/"
    assert "whsec_" not in owner.browser.get(here).content.decode()
    assert "on call" in owner.browser.get(owner.base + _BASE).content.decode()
    assert owner.browser.post(here + "edit", _typed(name="day shift", version="1")).status_code == 302
    assert owner.browser.post(here + "edit", _typed(name="late", version="1")).status_code == 409
    rule.refresh_from_db()
    assert (rule.name, rule.version, rule.filters) == ("day shift", 2, {})
    assert "0 message(s) that wait are not sent" in owner.browser.get(here + "remove").content.decode()
    assert owner.browser.post(here + "remove").status_code == 302
    assert not NotificationRule.objects.exists()


def test_every_fault_at_its_field(owner: Signed) -> None:
    body = _typed(name=" ", kinds=["nonsense"], url="ftp://x", digest_minutes="soon")
    answer = owner.browser.post(owner.base + _BASE + "new", body)
    page = answer.content.decode()
    assert answer.status_code == 422
    for said in (
        "1 to 120 characters",
        "there is no kind",
        "neither http nor https",
        "0 (each event at once)",
    ):
        assert said in page, said
    stranger = _typed(channel="EMAIL", emails=["stranger@example.com"])
    page = owner.browser.post(owner.base + _BASE + "new", stranger).content.decode()
    assert "stranger@example.com is no address of a member" in page
    assert not NotificationRule.objects.exists()


def test_a_test_and_its_log(owner: Signed) -> None:
    with Receiver() as receiver:
        rule = _made(owner, url=receiver.url)
        here = f"{owner.base}{_BASE}{rule.public_id}/"
        receiver.answers = [500]
        owner.browser.post(here + "test")
        sending.drain(5)
        delivery = Delivery.objects.get()
        assert "answered 500" in owner.browser.get(here).content.decode()
        log = f"{owner.base}/settings/deliveries/{delivery.public_id}/"
        page = owner.browser.get(log).content.decode()
        assert "Somebody tried this rule" in page
        assert "said" in page
        assert owner.browser.post(log).status_code == 302
        sending.drain(5)
        assert "Delivered" in owner.browser.get(log).content.decode()
        assert len({got.id for got in receiver.got}) == 1


def test_who_may_not_sees_and_changes_nothing(owner: Signed) -> None:
    rule = _made(owner)
    strangers = [sign_in("owner"), sign_in("developer")]
    before = contents()
    for person, base, expected in (
        (strangers[0], strangers[0].base, 404), (strangers[0], owner.base, 404),
        (strangers[1], strangers[1].base, 403),
    ):  # fmt: skip
        for path in ("", "edit", "remove"):
            got = person.browser.get(f"{base}{_BASE}{rule.public_id}/{path}")
            assert got.status_code == expected, (base, path)
        for verb in ("test", "disable", "remove", "rotate"):
            answer = person.browser.post(f"{base}{_BASE}{rule.public_id}/{verb}")
            assert answer.status_code == expected, (base, verb)
    assert contents() == before


@pytest.mark.parametrize("verb", ["enable", "disable"])
def test_switched(owner: Signed, verb: str) -> None:
    rule = _made(owner)
    owner.browser.post(f"{owner.base}{_BASE}{rule.public_id}/{verb}")
    rule.refresh_from_db()
    assert rule.enabled is (verb == "enable")
