"""Every endpoint: refused without its scope, blind for other tenants' things.

The table must name every operation of the OpenAPI document, so a new endpoint without a line
here fails the test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator

from billing.budgets.watching import set_budget
from billing.exports.machine import Dataset, Format
from billing.exports.requesting import request_export
from billing.invoices.drafting import open_draft
from billing.invoices.settling import credit, finalize
from billing.pricing.books import create_book
from billing.pricing.contracts import create_contract
from cells.contract import TENANT_SCOPES, Scope
from controlplane.actors import service
from controlplane.custody.exporting import request_export as request_whole
from controlplane.evacuations.models import Evacuation
from controlplane.moves.models import TenantMove
from controlplane.notifications.rules import Wanted, create_rule
from controlplane.notifications.rules import test_rule as try_rule
from controlplane.rehearsals.models import Rehearsal
from controlplane.tenants.actions.api_keys import create_api_key
from controlplane.tenants.models import Tenant
from controlplane.topology.models import Relocation, RelocationKind, RelocationState
from tests.component.billing.months import close, used
from tests.component.controlplane.contents import contents
from tests.component.controlplane.endpoints import ENDPOINTS, NEW_KEY, NEW_RULE
from tests.component.controlplane.factories import CellFactory, MembershipFactory, TenantFactory
from tests.component.controlplane.signed import SignedClient, operator, tenant_admin

pytestmark = pytest.mark.django_db


@dataclass(frozen=True, kw_only=True)
class World:
    """A tenant of ours, and another with a member and a key."""

    ours: Tenant
    theirs: Tenant
    ids: dict[str, str]


@pytest.fixture
def world(control: None) -> World:
    ours, theirs = TenantFactory(), TenantFactory()
    cell = CellFactory()

    def of(tenant: Tenant) -> tuple[str, str]:
        member = MembershipFactory(tenant=tenant)
        issued = create_api_key(
            tenant_id=tenant.id, name="k", scopes=["jobs:read"], actor=service("tests"), reason=""
        )
        return member.public_id, issued.key.id

    member, key = of(theirs)
    operators = create_api_key(
        tenant_id=None, name="op", scopes=["operator"], actor=service("tests"), reason=""
    )
    move = TenantMove.objects.create(
        tenant=theirs, source=cell, destination=CellFactory(), state="ABORTED", started_by="tests"
    )
    relocation = Relocation.objects.create(
        cell=cell, kind=RelocationKind.DRAIN, state=RelocationState.STOPPED, started_by="tests"
    )
    over: dict[str, Any] = {"region_id": "here", "state": "DONE", "started_by": "tests"}
    evacuation = Evacuation.objects.create(kind="EVACUATE", **over)
    rehearsal = Rehearsal.objects.create(seconds=60, **over)
    ids = {
        "rehearsal": rehearsal.public_id, "evacuation": evacuation.public_id, "region": "here",
        "erasure": "none",
        "relocation": relocation.public_id, "move": move.public_id, "member_id": member,
        "key_id": key, "tenant": theirs.public_id, "name": cell.name,
        "operator_key_id": operators.key.id, **_billed(theirs), **_told(theirs),
    }  # fmt: skip
    return World(ours=ours, theirs=theirs, ids=ids)


def _told(tenant: Tenant) -> dict[str, str]:
    """A notification rule, and a message of it."""
    by: dict[str, Any] = {"tenant_id": tenant.id, "actor": service("tests"), "reason": "a test"}
    rule = create_rule(wanted=Wanted(**{**NEW_RULE, "filters": {}}), **by).rule
    whole = request_whole(tenant_id=tenant.id, actor=service("tests"), reason="a test")
    return {
        "tenant_export_id": whole.public_id,
        "rule_id": rule.public_id,
        "delivery_id": try_rule(rule_id=rule.id, **by).public_id,
    }


def _billed(tenant: Tenant) -> dict[str, str]:
    """An invoice with a credit note, a contract and a price book of another currency."""
    month = date(2026, 1, 1)
    used(tenant, (month, "job_runs", "STRICT", 1_000_000))
    close(tenant, month)
    by: dict[str, Any] = {"actor": service("tests"), "reason": "a test"}
    contract = create_contract(tenant_id=tenant.id, effective_from=month, minimum="30", **by)
    draft = open_draft(tenant_id=tenant.id, month=month, **by)
    assert draft is not None
    invoice = finalize(invoice_id=draft.id, now=datetime(2026, 2, 2, tzinfo=UTC), **by)
    note = credit(invoice_id=invoice.id, lines=[{"n": 1, "amount": "1"}], now=invoice.finalized_at, **by)
    set_budget(tenant_id=tenant.id, amount="100", today=month, **by)
    book = create_book(
        name="euros", currency="EUR", effective_from=date(2099, 1, 1), prices=[], today=month, **by
    )
    export = request_export(
        tenant_id=tenant.id, about_tenant_id=tenant.id, dataset=Dataset.USAGE, file_format=Format.CSV,
        since=month, until=date(2026, 2, 1), today=date(2026, 2, 2), **by,
    )  # fmt: skip
    return {
        "export_id": export.public_id, "file_name": "manifest.json", "dataset": "USAGE",
        "report": "failed-runs",
        "invoice_id": invoice.public_id, "n": "1", "credit_note_id": note.public_id,
        "contract_id": contract.public_id, "price_book_id": book.public_id,
    }  # fmt: skip


def _path(template: str, world: World) -> str:
    ids = dict(world.ids)
    if template.startswith("/v1/admin/api-keys"):
        ids["key_id"] = ids["operator_key_id"]
    return template.format(**ids)


def _each(check: Callable[[str, str, Scope, Any], None]) -> None:
    for endpoint in ENDPOINTS:
        check(*endpoint)


def test_the_table_is_the_whole_api() -> None:
    document = SchemaGenerator().get_schema(request=None, public=True)
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(method, path) for method, path, _, _ in ENDPOINTS}


def test_unsigned_requests_are_nobody(world: World) -> None:
    def check(method: str, template: str, scope: Scope, body: Any) -> None:
        client = SignedClient(tenant_id=world.ours.public_id, secret=b"x" * 32)
        answer = client.call(method, _path(template, world), body)
        assert (answer.status, answer.json["code"]) == (401, "UNAUTHENTICATED"), (method, template)

    before = contents()
    _each(check)
    assert contents() == before


def test_every_scope_but_the_right_one_is_refused(world: World) -> None:
    def check(method: str, template: str, needed: Scope, body: Any) -> None:
        enough = {needed, Scope.OPERATOR} | ({Scope.ADMIN} if needed in TENANT_SCOPES else set())
        others = sorted(set(Scope) - enough)
        client = SignedClient(tenant_id=world.ours.public_id, scopes=others)
        answer = client.call(method, _path(template, world), body)
        assert (answer.status, answer.json["code"]) == (403, "FORBIDDEN"), (method, template)
        assert needed.value in answer.json["detail"]
        none = SignedClient(tenant_id=world.ours.public_id, scopes=())
        assert none.call(method, _path(template, world), body).status == 403

    before = contents()
    _each(check)
    assert contents() == before


def test_other_tenants_things_do_not_exist(world: World) -> None:
    # A data set is nobody's: everybody may have it exported regularly.
    about_one = [
        e for e in ENDPOINTS if "{" in e[1] and "/admin/" not in e[1] and not e[1].endswith("{dataset}")
    ]
    assert len(about_one) == 23
    before = contents()
    for method, template, scope, body in about_one:
        answer = tenant_admin(world.ours, scope).call(method, _path(template, world), body)
        assert (answer.status, answer.json["code"]) == (404, "NOT_FOUND"), (method, template)
    assert contents() == before


def test_lists_show_our_own_only(world: World) -> None:
    client = tenant_admin(world.ours)
    ours = tenant_admin(world.theirs)
    for path, field in (("/v1/members", "member_id"), ("/v1/api-keys", "key_id")):
        assert client.get(path).json["items"] == []
        assert [i[field] for i in ours.get(path).json["items"]] == [world.ids[field]]
    for event in client.get("/v1/audit-log").json["items"]:
        assert world.theirs.public_id not in str(event)


def test_a_tenantless_operator_must_name_a_tenant(world: World) -> None:
    for method, template, _, body in ENDPOINTS:
        if "/admin/" in template:
            continue
        answer = operator().call(method, _path(template, world), body)
        assert (answer.status, answer.json["code"]) == (400, "MALFORMED"), (method, template)


def test_an_operator_acts_for_a_tenant_and_it_is_audited(world: World) -> None:
    made = operator(world.theirs).post("/v1/api-keys", NEW_KEY)
    assert made.status == 201
    (event,) = (
        tenant_admin(world.theirs)
        .get(f"/v1/audit-log?subject={made.json['key_id']}&action=api_key.create")
        .json["items"]
    )
    assert event["actor"] == "key:operatorkey23456"


def test_members_and_keys_get_no_more_than_they_may_give(world: World) -> None:
    client = tenant_admin(world.theirs)
    before = contents()
    for scope in ("operator", "internal", "everything"):
        answer = client.post("/v1/api-keys", {"name": "n", "scopes": ["jobs:read", scope]})
        assert answer.status == 422
        assert [e["pointer"] for e in answer.json["errors"]] == ["/scopes/1"]
    made_owner = client.post("/v1/members", {"email": "o@example.com", "role": "owner"})
    raised = client.patch(f"/v1/members/{world.ids['member_id']}", {"role": "owner"})
    assert (made_owner.status, raised.status) == (403, 403)
    assert contents() == before
