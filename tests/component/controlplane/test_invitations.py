"""Invitations: a link for one address, once, for a while."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone

from controlplane.actors import Actor
from controlplane.errors import Conflicting, Forbidden, Invalid, NotFound
from controlplane.events.models import AuditEvent, OutboxItem
from controlplane.tenants.actions.invitations import (
    LinkGone,
    accept_invitation,
    invite_member,
    link_token,
    open_link,
    resend_invitation,
    revoke_invitation,
)
from controlplane.tenants.actions.members import add_member
from controlplane.tenants.mails import mail_invitation
from controlplane.tenants.models import Invitation, Membership, Tenant, User
from tests.component.controlplane.contents import contents
from tests.component.controlplane.factories import MembershipFactory, TenantFactory, UserFactory

pytestmark = pytest.mark.django_db

ADMIN = Actor(name="user:0199c0de-0000-7000-8000-000000000000", source="console")
OWNER = Actor(name=ADMIN.name, source="console", owner=True)
_GOOD = "a long enough passphrase"


@pytest.fixture
def tenant(control: None) -> Tenant:
    tenant: Tenant = TenantFactory()
    return tenant


def _invite(tenant: Tenant, email: str = "ada@example.com", **more: Any) -> Invitation:
    return invite_member(tenant_id=tenant.id, email=email, role="developer", actor=ADMIN, reason="", **more)


def _path(invitation: Invitation) -> str:
    return f"/invitations/{link_token(invitation)}"


def test_the_mail_carries_the_link_and_its_terms(tenant: Tenant) -> None:
    invitation = _invite(tenant, " Ada@Example.COM ")
    assert OutboxItem.objects.filter(topic="mail_invitation", subject=str(invitation.id)).count() == 1
    mail_invitation(str(invitation.id))
    (sent,) = mail.outbox
    assert sent.to == ["ada@example.com"]
    link = re.search(r"http://\S+(/invitations/\S+)", sent.body)
    assert link is not None
    assert Client().get(link[1]).status_code == 200
    assert AuditEvent.objects.get(action="member.invite").after["email"] == "ada@example.com"


def test_somebody_new_sets_a_password_and_is_in(tenant: Tenant) -> None:
    path = _path(_invite(tenant, may_see_payloads=True))
    browser = Client()
    weak = browser.post(path, {"name": "Ada", "password": "short"})
    assert weak.status_code == 422
    assert not User.objects.filter(email="ada@example.com").exists()
    joined = browser.post(path, {"name": "Ada", "password": _GOOD})
    assert (joined.status_code, joined["Location"]) == (302, f"/t/{tenant.slug}/")
    member = Membership.objects.get(tenant=tenant, user__email="ada@example.com")
    assert (member.role, member.may_see_payloads, member.user.name) == ("developer", True, "Ada")
    assert browser.get("/account/").status_code == 200
    done = AuditEvent.objects.filter(tenant_id=tenant.id).values_list("action", flat=True)
    assert {"member.invite", "user.create", "member.join"} <= set(done)
    assert AuditEvent.objects.get(action="user.create").actor == member.user.actor_name


def test_it_is_good_once(tenant: Tenant) -> None:
    path = _path(_invite(tenant))
    Client().post(path, {"password": _GOOD})
    before = contents()
    again = Client().post(path, {"password": _GOOD + "!"})
    assert again.status_code == 410
    assert b"accepted already" in again.content
    assert contents() == before


def test_who_became_a_member_meanwhile_uses_it_up(tenant: Tenant) -> None:
    invitation = _invite(tenant)
    user = UserFactory(email="ada@example.com")
    member = Membership.objects.create(tenant=tenant, user=user, role="viewer")
    browser = Client()
    browser.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    answer = browser.post(_path(invitation))
    assert answer.headers.get("Location") == f"/t/{tenant.slug}/", answer.content
    invitation.refresh_from_db()
    member.refresh_from_db()
    assert (invitation.accepted_at is not None, member.role) == (True, "viewer")
    assert AuditEvent.objects.get(action="member.use_invitation").subject == invitation.public_id
    assert not AuditEvent.objects.filter(action="member.join").exists()


def test_whoever_is_added_is_invited_no_more(tenant: Tenant) -> None:
    invitation = _invite(tenant)
    add_member(tenant_id=tenant.id, email="ADA@example.com", role="viewer", actor=ADMIN, reason="")
    invitation.refresh_from_db()
    assert invitation.revoked_at is not None


def test_a_mail_is_sent_whatever_the_tenant_is_called(tenant: Tenant) -> None:
    invitation = _invite(tenant)
    Tenant.objects.filter(pk=tenant.pk).update(name="Ada\r\nBcc: everybody@example.com")
    mail_invitation(str(invitation.id))
    (sent,) = mail.outbox
    assert sent.subject == "Join Ada Bcc: everybody@example.com on Clockhouse"
    assert sent.message()["Bcc"] is None


def test_it_expires(tenant: Tenant) -> None:
    invitation = _invite(tenant)
    Invitation.objects.filter(pk=invitation.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert Client().get(_path(invitation)).status_code == 410
    with pytest.raises(LinkGone):
        open_link(link_token(invitation))
    mail_invitation(str(invitation.id))
    assert mail.outbox == []


def test_another_address_does_not_get_in(tenant: Tenant) -> None:
    invitation = _invite(tenant)
    other = UserFactory()
    browser = Client()
    browser.force_login(other, backend="django.contrib.auth.backends.ModelBackend")
    before = contents()
    assert browser.get(_path(invitation)).status_code == 403
    assert browser.post(_path(invitation)).status_code == 403
    with pytest.raises(Forbidden):
        accept_invitation(token=link_token(invitation), user=other, actor=ADMIN, reason="")
    assert contents() == before


def test_who_has_an_account_signs_in_with_it(tenant: Tenant) -> None:
    user = UserFactory()
    path = _path(_invite(tenant, user.email))
    for method in ("get", "post"):
        answer = getattr(Client(), method)(path, {"password": _GOOD})
        assert (answer.status_code, answer["Location"].split("?")[0]) == (302, "/accounts/login/")
    user.refresh_from_db()
    assert not user.check_password(_GOOD)
    browser = Client()
    browser.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    assert tenant.name.encode() in browser.get(path).content
    assert browser.post(path)["Location"] == f"/t/{tenant.slug}/"


def test_another_mail_ends_the_link_of_the_first(tenant: Tenant) -> None:
    invitation = _invite(tenant)
    old = link_token(invitation)
    with pytest.raises(Conflicting):  # mails follow each other no faster than a minute
        resend_invitation(tenant_id=tenant.id, invitation_id=invitation.id, actor=ADMIN, reason="")
    Invitation.objects.filter(pk=invitation.pk).update(expires_at=timezone.now() + timedelta(days=3))
    newer = resend_invitation(tenant_id=tenant.id, invitation_id=invitation.id, actor=ADMIN, reason="")
    with pytest.raises(LinkGone):
        open_link(old)
    assert open_link(link_token(newer)) == newer


def test_it_can_be_withdrawn(tenant: Tenant) -> None:
    invitation = _invite(tenant)
    revoke_invitation(tenant_id=tenant.id, invitation_id=invitation.id, actor=ADMIN, reason="")
    assert Client().get(_path(invitation)).status_code == 410
    with pytest.raises(NotFound):
        resend_invitation(tenant_id=tenant.id, invitation_id=invitation.id, actor=ADMIN, reason="")
    assert _invite(tenant).pk != invitation.pk  # and a new one sent


def test_what_is_refused(tenant: Tenant) -> None:
    member = MembershipFactory(tenant=tenant)
    _invite(tenant)
    before = contents()
    with pytest.raises(Conflicting):
        _invite(tenant, "ADA@example.com")
    with pytest.raises(Conflicting):
        _invite(tenant, member.user.email)
    with pytest.raises(Invalid) as refused:
        invite_member(tenant_id=tenant.id, email="nobody", role="king", actor=ADMIN, reason="")
    assert {f.pointer for f in refused.value.faults} == {"/email", "/role"}
    with pytest.raises(Forbidden):
        invite_member(tenant_id=tenant.id, email="o@example.com", role="owner", actor=ADMIN, reason="")
    assert contents() == before
    invite_member(tenant_id=tenant.id, email="o@example.com", role="owner", actor=OWNER, reason="")


def test_invitations_of_others_are_not_found(tenant: Tenant) -> None:
    stranger = _invite(TenantFactory())
    before = contents()
    for act in (resend_invitation, revoke_invitation):
        with pytest.raises(NotFound):
            act(tenant_id=tenant.id, invitation_id=stranger.id, actor=OWNER, reason="")
    assert contents() == before


@pytest.mark.parametrize(
    ("token", "status"), [("nonsense", 404), ("a:b:c", 404), ("%00", 400), ("x" * 2000, 404)]
)
def test_no_link_of_ours(control: None, token: str, status: int) -> None:
    assert Client().get(f"/invitations/{token}").status_code == status
