"""Operators as guests: announced, audited, limited, and gone when the time is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from controlplane.actors import Actor, service
from controlplane.console.cells_client import CellClient, Refused
from controlplane.console.cells_client import path as api_path
from controlplane.errors import Conflicting, Forbidden, Invalid
from controlplane.events.models import AuditEvent
from controlplane.operators.models import SupportVisit
from controlplane.operators.support import (
    begin_visit,
    end_expired_visits,
    end_visit,
    grant_payloads,
    guest_of,
)
from controlplane.tenants.models import Tenant, User
from tests.component.controlplane.console.cell import JOB_ID, Cell
from tests.component.controlplane.console.conftest import Signed, sign_in
from tests.component.controlplane.contents import contents
from tests.component.controlplane.factories import TenantFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(control: None) -> User:
    return User.objects.create_user("op@example.com", "operator password", is_staff=True)


@pytest.fixture
def browser(operator: User) -> Client:
    client = Client()
    client.force_login(operator, backend="django.contrib.auth.backends.ModelBackend")
    return client


def _visit(browser: Client, tenant: Tenant, reason: str = "Ticket 17", minutes: int = 15) -> Any:
    return browser.post(
        f"/admin/pages/tenants/{tenant.slug}/visit", {"reason": reason, "minutes": str(minutes)}
    )


def _act_as(operator: User) -> Actor:
    return Actor(name=operator.actor_name, operator=True, source="admin")


def test_a_visit_is_announced_and_audited_at_both_ends(
    owner: Signed,
    browser: Client,
    operator: User,
) -> None:
    tenant = owner.membership.tenant
    assert browser.get(owner.base + "/").status_code == 404
    assert _visit(browser, tenant)["Location"] == owner.base + "/"
    for path in ("/", "/jobs/", "/settings/", "/settings/limits", "/usage", "/start", "/jobs/new"):
        page = browser.get(owner.base + path)
        assert page.status_code == 200, path
        assert b"as Clockhouse support" in page.content, path
        assert b"Ticket 17" in page.content, path
    assert b"as Clockhouse support" not in owner.browser.get(owner.base + "/").content
    assert browser.post(f"/support/{tenant.slug}/end").status_code == 302
    assert browser.get(owner.base + "/").status_code == 404
    events = AuditEvent.objects.filter(tenant_id=tenant.id, action__startswith="support.").order_by("id")
    assert [(e.action, e.actor) for e in events] == [
        ("support.begin", operator.actor_name),
        ("support.end", operator.actor_name),
    ]
    assert events[0].reason == "Ticket 17"
    log = owner.browser.get(f"{owner.base}/settings/audit?action=support.").content.decode()
    assert "Ticket 17" in log
    assert "Clockhouse operator" in log
    assert operator.email not in log


def test_the_cell_knows_who_it_is_and_what_they_may_not(
    owner: Signed,
    cell: Cell,
    browser: Client,
    operator: User,
) -> None:
    tenant = owner.membership.tenant
    _visit(browser, tenant)
    cell.calls.clear()
    browser.get(owner.base + "/jobs/")
    caller = cell.calls[0].caller
    assert (caller.actor, caller.tenant_id) == (operator.actor_name, tenant.public_id)
    assert "payloads:read" not in caller.scopes
    assert not {"admin", "operator", "targets:approve"} & set(caller.scopes)
    assert owner.browser.post(f"{owner.base}/settings/support", {"hours": "4"}).status_code == 302
    cell.calls.clear()
    browser.get(f"{owner.base}/jobs/{JOB_ID}/")
    assert "payloads:read" in cell.calls[0].caller.scopes
    owner.browser.post(f"{owner.base}/settings/support", {"hours": "0"})
    cell.calls.clear()
    browser.get(f"{owner.base}/jobs/{JOB_ID}/")
    assert "payloads:read" not in cell.calls[0].caller.scopes


def test_a_guest_is_told_what_holds_for_guests(owner: Signed, cell: Cell, browser: Client) -> None:
    _visit(browser, owner.membership.tenant)
    page = browser.get(f"{owner.base}/jobs/{JOB_ID}/").content.decode()
    assert "the workspace has not allowed support to see payloads" in page
    assert "your role" not in page
    refused = browser.get(owner.base + "/settings/members/")
    assert refused.status_code == 403
    assert "members of the workspace do that themselves" in refused.content.decode()


def test_a_guest_changes_no_people_keys_or_settings(owner: Signed, browser: Client) -> None:
    _visit(browser, owner.membership.tenant)
    before = contents()
    member = owner.membership.public_id
    for path, body in (
        ("/settings/", {"display_name": "Mine", "timezone": "UTC", "theme": "dark"}),
        ("/settings/support", {"hours": "4"}),
        ("/settings/members/", {"email": "x@example.com", "role": "admin"}),
        (f"/settings/members/{member}/", {"role": "viewer"}),
        (f"/settings/members/{member}/remove", {}),
        ("/settings/keys/new", {"name": "k", "scopes": "admin", "token": "t"}),
        ("/targets/tgt_echo/approve", {}),
        ("/targets/tgt_echo/rotate", {}),
        ("/targets/tgt_echo/disable", {}),
        ("/targets/tgt_echo/edit", {"base_url": "https://elsewhere.example.com", "version": "1"}),
        ("/targets/new", {"base_url": "https://elsewhere.example.com", "request_token": "t"}),
    ):
        assert browser.post(owner.base + path, body).status_code == 403, path
    assert browser.post(owner.base + "/settings/leave").status_code == 404
    browser.post(owner.base + "/start", {"token": "t"})
    for path in ("/settings/members/", "/settings/keys/", "/settings/audit"):
        assert browser.get(owner.base + path).status_code == 403, path
    assert contents() == before


def test_time_ends_a_visit(operator: User) -> None:
    tenant = TenantFactory()
    visit = begin_visit(
        tenant_id=tenant.id, operator=operator, minutes=15, actor=_act_as(operator), reason="why"
    )
    assert guest_of(operator, tenant.slug) is not None
    SupportVisit.objects.filter(pk=visit.pk).update(
        started_at=timezone.now() - timedelta(hours=1), expires_at=timezone.now() - timedelta(seconds=1)
    )
    assert guest_of(operator, tenant.slug) is None
    ended = AuditEvent.objects.get(action="support.end")  # noticed with the first look, once
    visit.refresh_from_db()
    assert visit.ended_at == visit.expires_at
    assert (ended.reason, ended.after) == ("time over", {"ended_at": visit.expires_at.isoformat()})
    assert guest_of(operator, tenant.slug) is None
    assert end_expired_visits() == 0
    assert AuditEvent.objects.filter(action="support.end").count() == 1


@pytest.mark.parametrize("by", ["beat", "begin", "end"])
def test_whoever_notices_writes_the_end_down(operator: User, by: str) -> None:
    tenant = TenantFactory()
    again: dict[str, Any] = {"tenant_id": tenant.id, "operator": operator, "actor": _act_as(operator)}
    visit = begin_visit(**again, minutes=15, reason="why")
    over = timezone.now() - timedelta(seconds=1)
    SupportVisit.objects.filter(pk=visit.pk).update(
        started_at=timezone.now() - timedelta(hours=1), expires_at=over
    )
    if by == "beat":
        assert (end_expired_visits(), end_expired_visits()) == (1, 0)
    elif by == "begin":
        assert begin_visit(**again, minutes=15, reason="again").pk != visit.pk
    else:
        assert end_visit(**again, reason="done") is False
    ended = AuditEvent.objects.get(action="support.end")
    assert (ended.actor, ended.after) == ("service:operators", {"ended_at": over.isoformat()})


def test_a_visit_changes_no_target_whatever_the_page(owner: Signed, cell: Cell, browser: Client) -> None:
    _visit(browser, owner.membership.tenant)
    guest = guest_of(User.objects.get(email="op@example.com"), owner.membership.tenant.slug)
    assert guest is not None
    client = CellClient.for_member(guest)
    cell.calls.clear()
    for send in (
        lambda: client.post("/v1/targets", {"base_url": "https://elsewhere.example.com"}),
        lambda: client.patch(api_path("targets", "tgt_echo"), {"auth": {"type": "BEARER", "token": "t"}}),
        lambda: client.delete(api_path("targets", "tgt_echo")),
        lambda: client.post(api_path("targets", "tgt_echo", verb="approve"), {}),
    ):
        with pytest.raises(Refused) as refused:
            send()
        assert (refused.value.status, "tenant's alone" in refused.value.detail) == (403, True)
    assert cell.calls == []
    assert client.get(api_path("targets", "tgt_echo"))["target_id"] == "tgt_echo"
    page = browser.get(f"{owner.base}/targets/tgt_echo/").content.decode()
    assert "Test call" in page
    assert "/edit" not in page


def test_what_a_visit_asks_of_the_cell_is_in_the_audit_log_first(
    owner: Signed, cell: Cell, browser: Client, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    _visit(browser, owner.membership.tenant)
    browser.get(f"{owner.base}/jobs/{JOB_ID}/")
    acts = AuditEvent.objects.filter(action="support.act")
    assert not acts.exists()
    cell.calls.clear()
    browser.post(f"{owner.base}/jobs/{JOB_ID}/pause", {"token": "t", "reason": "secret words"})
    act, asked = acts.get(), f"/v1/jobs/{JOB_ID}:pause"
    assert [call.target for call in cell.calls if call.method == "POST"] == [asked]
    assert (act.tenant_id, act.actor, act.reason) == (
        owner.membership.tenant.id, operator.actor_name, "Ticket 17",
    )  # fmt: skip
    visit = SupportVisit.objects.get()
    assert act.after == {"visit": str(visit.id), "method": "POST", "path": asked}

    def full(*args: object, **more: object) -> None:
        raise OperationalError("disk full")

    monkeypatch.setattr("controlplane.operators.support.record", full)
    cell.calls.clear()
    page = browser.post(f"{owner.base}/jobs/{JOB_ID}/pause", {"token": "u"}, follow=True)
    assert b"could not be written to the audit log" in page.content
    assert [call for call in cell.calls if call.method != "GET"] == []


def test_who_may_visit_and_how(operator: User) -> None:
    tenant = TenantFactory()
    member = sign_in("owner").membership.user
    before = contents()
    with pytest.raises(Forbidden):
        begin_visit(
            tenant_id=tenant.id, operator=member, minutes=15, actor=Actor(name=member.actor_name), reason="x"
        )
    with pytest.raises(Invalid) as refused:
        begin_visit(tenant_id=tenant.id, operator=operator, minutes=9999, actor=_act_as(operator), reason=" ")
    assert {f.pointer for f in refused.value.faults} == {"/reason", "/minutes"}
    assert contents() == before
    begin_visit(tenant_id=tenant.id, operator=operator, minutes=15, actor=_act_as(operator), reason="why")
    with pytest.raises(Conflicting):
        begin_visit(tenant_id=tenant.id, operator=operator, minutes=15, actor=_act_as(operator), reason="why")


def test_one_who_is_no_operator_any_more_is_out(operator: User) -> None:
    tenant = TenantFactory()
    begin_visit(tenant_id=tenant.id, operator=operator, minutes=15, actor=_act_as(operator), reason="why")
    operator.is_staff = False
    operator.save()
    assert guest_of(operator, tenant.slug) is None


def test_a_grant_ends_by_itself(control: None) -> None:
    tenant = TenantFactory()
    with pytest.raises(Invalid):
        grant_payloads(tenant_id=tenant.id, hours=1000, actor=service("t"), reason="")
    grant_payloads(tenant_id=tenant.id, hours=4, actor=service("t"), reason="")
    assert AuditEvent.objects.filter(action="support.grant_payloads").count() == 1


def test_members_do_not_reach_operators_pages(owner: Signed) -> None:
    for path in ("cells/", "tenants/", f"tenants/{owner.membership.tenant.slug}/", "system/", "mail/"):
        assert owner.browser.get(f"/admin/pages/{path}").status_code in (302, 403), path
        assert Client().get(f"/admin/pages/{path}").status_code == 302
    assert _visit(owner.browser, owner.membership.tenant).status_code in (302, 403)
    assert SupportVisit.objects.count() == 0


def test_operators_pages(owner: Signed, browser: Client) -> None:
    tenant = owner.membership.tenant
    name = tenant.placement.cell_id
    for path in ("cells/", f"cells/{name}/", "tenants/?q=ten", f"tenants/{tenant.slug}/", "system/"):
        page = browser.get(f"/admin/pages/{path}")
        assert page.status_code == 200, path
    assert b"has not been seen" in browser.get("/admin/pages/cells/").content
    quotas = dict.fromkeys(type(tenant.quota).NAMES, "7")
    browser.post(f"/admin/pages/tenants/{tenant.slug}/quotas", {**quotas, "reason": "asked for"})
    tenant.quota.refresh_from_db()
    assert set(tenant.quota.as_dict().values()) == {7}
    browser.post(f"/admin/pages/tenants/{tenant.slug}/quotas", {**quotas, "running_runs": "-1"})
    browser.post(f"/admin/pages/tenants/{tenant.slug}/suspend", {"reason": "unpaid"})
    assert Tenant.objects.get(pk=tenant.pk).state == "SUSPENDED"
    browser.post(f"/admin/pages/cells/{name}/", {"state": "CORDONED", "reason": "maintenance"})
    tenant.placement.cell.refresh_from_db()
    assert tenant.placement.cell.state == "CORDONED"
    assert browser.get("/admin/pages/tenants/nobody/").status_code == 404
    assert browser.post(f"/admin/pages/tenants/{tenant.slug}/explode").status_code == 404


def test_mails_are_listed_where_they_go_to_a_folder(browser: Client, settings: Any, tmp_path: Any) -> None:
    settings.MAIL_FOLDER = ""
    assert browser.get("/admin/pages/mail/").status_code == 404
    settings.MAIL_FOLDER = str(tmp_path / "mail")
    settings.EMAIL_BACKEND = "controlplane.mail.FolderBackend"
    assert b"No mail was sent yet" in browser.get("/admin/pages/mail/").content
    from django.core.mail import send_mail

    send_mail("Grüße <b>", "Open http://example.com/x", None, ["ada@example.com"])
    page = browser.get("/admin/pages/mail/").content.decode()
    assert "Grüße &lt;b&gt;" in page
    assert 'href="http://example.com/x"' in page
    assert len(list((tmp_path / "mail").glob("*.eml"))) == 1
