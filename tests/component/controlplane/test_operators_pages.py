"""The operators' pages: every model is there, nothing but operators gets in, actions are use-cases."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.apps import apps
from django.contrib import admin
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from controlplane.actors import Actor, service
from controlplane.events.models import AuditEvent
from controlplane.operators.models import OperatorRead
from controlplane.tenants.actions.api_keys import create_api_key
from controlplane.tenants.actions.tenants import set_quotas
from controlplane.tenants.models import ApiKey, Tenant, User
from controlplane.topology.actions import windows
from controlplane.topology.models import Cell
from tests.component.controlplane.factories import CellFactory, MembershipFactory, TenantFactory
from tests.component.controlplane.signed import operator as signed_operator
from tests.component.controlplane.signed import tenant_admin
from tests.component.controlplane.standin import StandInCell

pytestmark = pytest.mark.django_db

#: Composite keys, which the admin cannot show.
NOT_SHOWN = {"MeterRecord", "DirtyDay", "UsageHour", "UsageMonth", "UsageAdjustment", "DriftCheck"}
OURS = [
    model
    for label in ("tenants", "topology", "events", "api", "operators", "billing")
    for model in apps.get_app_config(label).get_models()
    if model.__name__ not in NOT_SHOWN
]


@pytest.fixture
def client(control: None) -> Client:
    staff = User.objects.create_user("op@example.com", "operator password", is_staff=True)
    client = Client()
    client.force_login(staff)
    return client


def test_every_model_has_a_list_and_shows_no_secret(client: Client) -> None:
    member = MembershipFactory()
    create_api_key(tenant_id=member.tenant.id, name="k", scopes=["jobs:read"], actor=service("t"), reason="")
    for model in OURS:
        assert model in admin.site._registry
        meta = model._meta
        page = client.get(reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist"))
        assert page.status_code == 200, model
        row = model._default_manager.first()
        if row is not None:
            shown = client.get(reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk]))
            assert shown.status_code == 200, model
            for secret in ("sealed_key", "sha256", "password"):
                assert f'field-{secret}"' not in shown.content.decode()


def test_members_of_tenants_do_not_get_in(control: None) -> None:
    member = MembershipFactory(role="owner")
    client = Client()
    client.force_login(member.user)
    for path in ("/admin/", "/admin/tenants/tenant/"):
        assert client.get(path).status_code == 302
    assert Client().get("/admin/tenants/tenant/").status_code == 302


def _act(client: Client, model: str, action: str, *ids: object) -> None:
    answer = client.post(
        reverse(f"admin:{model}_changelist"),
        {"action": action, "_selected_action": [str(i) for i in ids], "index": "0"},
    )
    assert answer.status_code == 302


def test_actions_are_use_cases(client: Client) -> None:
    tenant = TenantFactory()
    key = create_api_key(
        tenant_id=tenant.id, name="k", scopes=["jobs:read"], actor=service("t"), reason=""
    ).key
    _act(client, "tenants_tenant", "suspend", tenant.pk)
    assert Tenant.objects.get(pk=tenant.pk).state == "SUSPENDED"
    _act(client, "tenants_tenant", "resume", tenant.pk)
    assert Tenant.objects.get(pk=tenant.pk).state == "ACTIVE"
    _act(client, "tenants_apikey", "revoke", key.pk)
    assert ApiKey.objects.get(pk=key.pk).revoked_at is not None
    cell = tenant.placement.cell_id
    _act(client, "topology_cell", "cordon", cell)
    assert Cell.objects.get(pk=cell).state == "CORDONED"
    operator = User.objects.get(email="op@example.com")
    done = AuditEvent.objects.filter(actor=operator.actor_name).values_list("action", flat=True)
    assert set(done) == {"tenant.suspend", "tenant.resume", "api_key.revoke", "cell.set_state"}


def test_a_tenants_page_names_people_and_keys(client: Client) -> None:
    member = MembershipFactory(role="owner")
    tenant = member.tenant
    key = create_api_key(
        tenant_id=tenant.id, name="deploys", scopes=["jobs:read"], actor=service("t"), reason=""
    ).key
    names = (member.user.actor_name, f"key:{key.pk}", "user:nobody", "service:beat")
    for number, name in enumerate(names, start=1000):
        actor = Actor(name=name, operator=True, owner=True)
        set_quotas(tenant_id=tenant.id, quotas={"pending_timers": number}, actor=actor, reason="r")
    page = client.get(reverse("operators:tenant", args=[tenant.slug])).content.decode()
    for who in (member.user.email, "key “deploys”", "user:nobody", "service:beat"):
        assert f">{who}</span>" in page
    assert f">{member.user.actor_name}<" not in page
    listed = client.get(reverse("operators:tenants")).content.decode()
    assert 'data-label="Cost this month"' in listed


def test_low_windows_are_lengthened_and_it_is_recorded(client: Client) -> None:
    name = CellFactory.name.function()
    with StandInCell(name, bytes(range(32))) as answering:
        CellFactory(name=name, url=answering.url)
        tenant = TenantFactory()
        at = datetime.now(UTC) + timedelta(minutes=5)
        form = {
            "from": f"{at:%Y-%m-%dT%H:%M}",
            "until": f"{at + timedelta(minutes=10):%Y-%m-%dT%H:%M}",
            "extra_seconds": "600",
            "tenant": tenant.slug,
            "reason": "a stampede",
        }
        url = reverse("operators:cell-lengthen", args=[name])
        assert b"7 LOW timers" in client.post(url, form, follow=True).content
        asked, further = answering.lengthened
        assert further == asked | {"cursor": "on"}
        assert asked["from"] == f"{at:%Y-%m-%dT%H:%M}:00Z"
        assert (asked["extra_seconds"], asked["tenant_id"]) == (600, tenant.public_id)
        for wrong, said in (
            ({"until": form["from"]}, "must lie after from"),
            ({"from": "0001-01-01T00:00+05:00"}, "two times in UTC"),
            ({"extra_seconds": "many"}, "whole seconds are needed"),
            ({"tenant": "nobody"}, "no tenant nobody lives on"),
            ({"reason": ""}, "/reason: is needed"),
        ):
            assert said in client.post(url, form | wrong, follow=True).content.decode()
        assert len(answering.lengthened) == 2
        answering.failing = True
        assert "did not confirm it" in client.post(url, form | {"tenant": ""}, follow=True).content.decode()
    events = AuditEvent.objects.filter(action="cell.lengthen_windows").order_by("-id")
    failed, _, done, begun = events
    assert begun.after == {
        **{name: asked[name] for name in ("from", "until", "extra_seconds", "operation_id")},
        "error": "not confirmed yet",
    }
    assert (done.tenant_id, done.reason, done.after["jobs"]) == (tenant.id, "a stampede", 7)
    assert "503" in failed.after["error"]


def test_a_form_that_is_sent_twice_lengthens_once(client: Client) -> None:
    name = CellFactory.name.function()
    with StandInCell(name, bytes(range(32))) as answering:
        CellFactory(name=name, url=answering.url)
        page = client.get(reverse("operators:cell", args=[name])).content.decode()
        (form_id,) = re.findall(r'name="form_id" value="([0-9a-f]{32})"', page)
        at = datetime.now(UTC) + timedelta(minutes=5)
        form = {
            "from": f"{at:%Y-%m-%dT%H:%M}",
            "until": f"{at + timedelta(minutes=10):%Y-%m-%dT%H:%M}",
            "extra_seconds": "600",
            "reason": "a stampede",
            "form_id": form_id,
        }
        url = reverse("operators:cell-lengthen", args=[name])
        assert b"not a second time" not in client.post(url, form, follow=True).content
        asked = len(answering.lengthened)
        assert b"7 LOW timers" in (again := client.post(url, form, follow=True).content)
        assert b"not a second time" in again
        assert len(answering.lengthened) == asked
        client.post(url, form | {"extra_seconds": "900"}, follow=True)
        assert len(answering.lengthened) == 2 * asked
    first, second = {each["operation_id"] for each in answering.lengthened}
    assert first != second


def test_lengthening_is_one_operation_until_it_is_confirmed(
    control: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for the same while it is under way, or after a process died of it, asks for that one."""
    name = CellFactory.name.function()
    at = datetime.now(UTC) + timedelta(minutes=5)
    with StandInCell(name, bytes(range(32))) as answering:
        CellFactory(name=name, url=answering.url)

        def ask() -> None:
            windows.lengthen_windows(
                cell=name, since=at, until=at + timedelta(minutes=10), extra_seconds=600,
                actor=service("t"), reason="a stampede",
            )  # fmt: skip

        class Killed(BaseException):
            pass

        def dies(*_: object, **__: object) -> None:
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(windows, "call_cell", dies)
            with pytest.raises(Killed):
                ask()
        (begun,) = AuditEvent.objects.filter(action="cell.lengthen_windows")
        ask()
        ask()
        operations = [each["operation_id"] for each in answering.lengthened if "cursor" not in each]
    assert begun.after is not None
    assert operations[0] == begun.after["operation_id"] != operations[1]


def test_nothing_is_edited_by_form(client: Client) -> None:
    tenant = TenantFactory()
    address = reverse("admin:tenants_tenant_change", args=[tenant.pk])
    assert client.post(address, {"name": "Mine"}).status_code == 403
    assert client.get(reverse("admin:tenants_tenant_add")).status_code == 403
    assert Tenant.objects.get(pk=tenant.pk).name == tenant.name


def _reads(tenant: Tenant) -> list[tuple[str, str]]:
    found = AuditEvent.objects.filter(tenant_id=tenant.id, action="operator.read").order_by("id")
    return [(event.actor, event.after["first"]) for event in found]  # type: ignore[index]


def test_looking_at_a_tenant_is_in_its_audit_log_once_an_hour(client: Client) -> None:
    tenant, other = TenantFactory(), TenantFactory()
    key = create_api_key(
        tenant_id=tenant.id, name="k", scopes=["jobs:read"], actor=service("t"), reason=""
    ).key
    client.get("/admin/pages/tenants/")
    client.get("/admin/tenants/tenant/")
    client.get("/admin/tenants/apikey/")
    assert _reads(tenant) == []  # lists over all tenants are the operators' own register
    client.get(f"/admin/tenants/apikey/{key.pk}/change/")
    (first,) = _reads(tenant)
    assert first[1] == f"/admin/tenants/apikey/{key.pk}/change/"
    client.get(f"/admin/pages/tenants/{tenant.slug}/")
    client.get(f"/admin/tenants/tenant/{tenant.pk}/change/")
    assert _reads(tenant) == [first]
    assert _reads(other) == []
    client.get(f"/admin/tenants/tenant/?q={other.slug}")
    assert [what for _, what in _reads(other)] == ["/admin/tenants/tenant/"]
    OperatorRead.objects.update(hour=timezone.now() - timedelta(hours=30))
    client.get(f"/admin/pages/tenants/{tenant.slug}/")
    assert len(_reads(tenant)) == 2
    assert OperatorRead.objects.count() == 1  # what was told long ago is forgotten


def test_an_operators_key_that_reads_is_in_the_audit_log_as_well(control: None) -> None:
    tenant = TenantFactory()
    for _ in range(2):
        assert signed_operator(tenant).get("/v1/members").status == 200
        assert signed_operator().get(f"/v1/admin/tenants/{tenant.public_id}").status == 200
    assert tenant_admin(tenant).get("/v1/members").status == 200
    assert signed_operator().get("/v1/admin/tenants").status == 200
    assert _reads(tenant) == [("key:operatorkey23456", "/v1/members")]
