"""Accounts: passwords, the second factor, throttling; operators sign in the same way."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.core import mail
from django.core.cache import cache, caches
from django.test import Client

from controlplane.caching import SharedCache
from controlplane.events.models import AuditEvent
from controlplane.tenants.models import User
from tests.component.controlplane.factories import UserFactory
from tests.component.controlplane.totp import totp_code

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse"
NEW = "battery staple, again"


@pytest.fixture(autouse=True)
def counters(control: None) -> Iterator[None]:
    """No test is throttled for another's tries."""
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def user(control: None) -> User:
    user: User = UserFactory()
    return user


def _sign_in(user: User, password: str = PASSWORD, browser: Client | None = None) -> tuple[Client, Any]:
    browser = browser or Client()
    return browser, browser.post("/accounts/login/", {"login": user.email, "password": password})


def _signed_in(browser: Client) -> bool:
    return browser.get("/account/").status_code == 200


def _confirm(browser: Client) -> None:
    """What is asked before an account's locks are changed."""
    browser.post("/accounts/reauthenticate/", {"password": PASSWORD})


def _enrol(browser: Client) -> str:
    """Sets up the app; its secret."""
    _confirm(browser)
    page = browser.get("/accounts/2fa/totp/activate/")
    secret = re.search(r'id="totp-secret"><code>([A-Z2-7]+)<', page.content.decode())
    assert secret is not None
    answer = browser.post("/accounts/2fa/totp/activate/", {"code": totp_code(secret[1])})
    assert answer.status_code == 302, answer.content
    return secret[1]


def test_in_and_out(user: User) -> None:
    browser, answer = _sign_in(user)
    assert answer.status_code == 302
    assert _signed_in(browser)
    browser.post("/accounts/logout/")
    assert not _signed_in(browser)
    _, wrong = _sign_in(user, "wrong")
    assert wrong.status_code == 200
    assert b'role="alert"' in wrong.content


def test_nobody_signs_up(control: None) -> None:
    answer = Client().post(
        "/accounts/signup/", {"email": "x@example.com", "password1": NEW, "password2": NEW}
    )
    assert b"begin with an invitation" in answer.content
    assert User.objects.count() == 0


def test_the_app_is_set_up_and_asked_for(user: User) -> None:
    browser, _ = _sign_in(user)
    secret = _enrol(browser)
    stored = Authenticator.objects.get(user=user, type="totp").data
    assert secret not in str(stored)  # sealed at rest

    fresh, answer = _sign_in(user)
    assert answer["Location"].split("?")[0] == "/accounts/2fa/authenticate/"
    assert not _signed_in(fresh)
    wrong = fresh.post("/accounts/2fa/authenticate/", {"code": "000000"})
    assert b'role="alert"' in wrong.content
    assert not _signed_in(fresh)
    # The code that set the app up is used; an app shows the next one half a minute later.
    fresh.post("/accounts/2fa/authenticate/", {"code": totp_code(secret, at=time.time() + 30)})
    assert _signed_in(fresh)


def test_a_recovery_code_opens_once(user: User) -> None:
    browser, _ = _sign_in(user)
    _enrol(browser)
    page = browser.get("/accounts/2fa/recovery-codes/").content.decode()
    shown = re.search(r'<pre id="codes"><code>(.*?)</code>', page, re.DOTALL)
    assert shown is not None
    codes = shown[1].split()
    assert len(codes) == 10
    assert codes[0] not in str(Authenticator.objects.get(user=user, type="recovery_codes").data)
    for expected in (True, False):
        fresh, _ = _sign_in(user)
        fresh.post("/accounts/2fa/authenticate/", {"code": codes[0]})
        assert _signed_in(fresh) is expected
        cache.clear()


def test_changing_locks_asks_who_it_is(user: User) -> None:
    browser = Client()
    browser.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    for path in ("/accounts/2fa/totp/activate/", "/accounts/2fa/recovery-codes/generate/"):
        assert "/reauthenticate/" in browser.get(path)["Location"]


def test_guessing_is_throttled(user: User) -> None:
    for _ in range(5):
        _sign_in(user, "a guess")
    browser, answer = _sign_in(user)  # the right one, too late
    assert not _signed_in(browser)
    assert b"Too many" in answer.content
    other = UserFactory()
    browser, _ = _sign_in(other)
    assert _signed_in(browser)  # only the account that was guessed at


def test_throttling_goes_on_while_valkey_is_away(user: User, settings: Any) -> None:
    away = SharedCache("redis://127.0.0.1:1/0", {"OPTIONS": {"instead": "database"}, "KEY_PREFIX": "cache"})
    assert away.add("k", 1, 60) is True
    assert away.add("k", 2, 60) is False
    assert away.get("k") == 1
    assert caches["database"].get("k") == 1
    away.delete("k")
    assert away.get("k") is None


def test_a_cache_that_is_cleared_leaves_others_things(control: None, settings: Any) -> None:
    import redis

    with redis.Redis.from_url(settings.CONFIGURATION.valkey_url) as valkey:
        valkey.set("celery:something", "kept")
        cache.set("mine", 1)
        cache.clear()
        assert cache.get("mine") is None
        assert valkey.get("celery:something") == b"kept"
        valkey.delete("celery:something")


def test_a_forgotten_password_is_set_anew_by_mail(user: User) -> None:
    browser = Client()
    browser.post("/accounts/password/reset/", {"email": user.email})
    (sent,) = mail.outbox
    assert sent.subject == "Choose a new password for Clockhouse"
    path = re.search(r"http://[^/]+(/accounts/password/reset/key/\S+)", sent.body)
    assert path is not None
    form = browser.get(path[1], follow=True)
    address = form.redirect_chain[-1][0]
    assert browser.post(address, {"password1": "short", "password2": "short"}).status_code == 200
    assert browser.post(address, {"password1": NEW, "password2": NEW}).status_code == 302
    assert _signed_in(_sign_in(user, NEW)[0])
    assert b"not good any more" in Client().get(path[1], follow=True).content  # once


def test_a_reset_tells_nobody_who_has_an_account(user: User) -> None:
    known = Client().post("/accounts/password/reset/", {"email": user.email})
    mail.outbox.clear()
    unknown = Client().post("/accounts/password/reset/", {"email": "nobody@example.com"})
    assert (known.status_code, known["Location"]) == (unknown.status_code, unknown["Location"])
    assert mail.outbox == []


def test_a_password_is_changed(user: User) -> None:
    browser, _ = _sign_in(user)
    wrong = {"oldpassword": "no", "password1": NEW, "password2": NEW}
    assert browser.post("/accounts/password/change/", wrong).status_code == 200
    browser.post("/accounts/password/change/", {**wrong, "oldpassword": PASSWORD})
    assert _signed_in(browser)
    assert _signed_in(_sign_in(user, NEW)[0])
    assert AuditEvent.objects.filter(action="user.set_password", actor=user.actor_name).count() == 1
    assert "Your Clockhouse password was changed" in [m.subject for m in mail.outbox]


def test_an_address_takes_over_once_it_is_confirmed(user: User) -> None:
    browser, _ = _sign_in(user)
    asked = browser.post("/accounts/email/", {"action_add": "", "email": "new.home@example.com"})
    assert asked["Location"].startswith("/accounts/reauthenticate/")
    assert mail.outbox == []
    _confirm(browser)
    browser.post("/accounts/email/", {"action_add": "", "email": "New.Home@example.com"})
    sent = next(m for m in mail.outbox if m.to == ["new.home@example.com"])
    user.refresh_from_db()
    assert user.email != "new.home@example.com"
    path = re.search(r"http://[^/]+(/accounts/confirm-email/\S+)", sent.body)
    assert path is not None
    assert browser.post(path[1]).status_code == 302
    user.refresh_from_db()
    assert user.email == "new.home@example.com"


def test_other_sessions_are_ended(user: User) -> None:
    first, _ = _sign_in(user)
    second, _ = _sign_in(user)
    first.get("/account/")
    assert b"this one" in first.get("/accounts/sessions/").content
    first.post("/accounts/sessions/")
    assert _signed_in(first)
    assert not _signed_in(second)


def test_operators_sign_in_as_everybody_does(control: None) -> None:
    operator = User.objects.create_user("op@example.com", PASSWORD, is_staff=True)
    answer = Client().get("/admin/login/?next=/admin/")
    assert (answer.status_code, answer["Location"].split("?")[0]) == (302, "/accounts/login/")
    browser, _ = _sign_in(operator)
    assert browser.get("/admin/pages/cells/").status_code == 200
    assert browser.get("/")["Location"] == "/admin/pages/cells/"


def test_preferences(user: User) -> None:
    browser, _ = _sign_in(user)
    bad = browser.post("/account/", {"name": "Ada", "timezone": "Mars/Olympus", "theme": "pink"})
    assert bad.status_code == 422
    assert b"no time zone of this name" in bad.content
    browser.post("/account/", {"name": "Ada", "timezone": "Asia/Tokyo", "theme": "dark"})
    user.refresh_from_db()
    assert (user.name, user.timezone, user.theme) == ("Ada", "Asia/Tokyo", "dark")
    assert b'data-preferred="dark"' in browser.get("/account/").content
