"""Operators' pages of money: what is shown, what is asked first, and that every act is a use-case."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from billing.invoices.models import Invoice
from billing.models import BillingPeriod, ChargeBook, Contract, DriftFinding, MeterConflict, MeterRecord
from controlplane.events.models import AuditEvent
from controlplane.tenants.models import User
from tests.component.billing.months import close, used
from tests.component.controlplane.contents import contents
from tests.component.controlplane.factories import MembershipFactory, TenantFactory

pytestmark = pytest.mark.django_db
MONTH = date(2026, 10, 1)
PAGES = ("money", "meters", "periods", "invoices", "exports", "prices", "price-new", "contracts")


@pytest.fixture
def client(control: None) -> Client:
    staff = User.objects.create_user("op@example.com", "operator password", is_staff=True)
    client = Client()
    client.force_login(staff)
    return client


@pytest.fixture
def tenant(control: None) -> Any:
    tenant = MembershipFactory(role="owner").tenant
    used(tenant, (MONTH, "job_runs", "HOME_ASYNC", 1_100_000), (MONTH, "replicated_writes", "HOME_ASYNC", 9))
    close(tenant, MONTH)
    return tenant


def _page(client: Client, name: str, *args: object, query: str = "") -> str:
    answer = client.get(reverse(f"operators:{name}", args=args) + query)
    assert answer.status_code == 200, name
    return answer.content.decode()


def _actions(subject: str = "") -> list[tuple[str, str]]:
    found = AuditEvent.objects.order_by("id").exclude(action="operator.read")
    return [(e.action, e.reason) for e in found if subject in e.action]


def test_pages_are_for_operators(client: Client, tenant: Any) -> None:
    member = Client()
    member.force_login(MembershipFactory(tenant=tenant, role="owner").user)
    draft = _draft(client, tenant)
    addresses = [reverse(f"operators:{name}") for name in PAGES]
    addresses += [
        reverse("operators:invoice", args=[draft.public_id]),
        reverse("operators:contract-new", args=[tenant.slug]),
    ]
    before = contents()
    for address in addresses:
        assert client.get(address).status_code == 200, address
        assert member.get(address).status_code == 302, address
    for name, args in (
        ("invoice-act", [draft.public_id, "finalize"]),
        ("price-withdraw", [ChargeBook.objects.get().public_id]),
        ("period-close", [tenant.slug, "2026-10"]),
    ):
        assert member.post(reverse(f"operators:{name}", args=args), {"reason": "x"}).status_code == 302
    assert {k: v for k, v in contents().items() if "audit" not in k and "read" not in k} == {
        k: v for k, v in before.items() if "audit" not in k and "read" not in k
    }


def test_revenue_cost_and_what_is_left(client: Client, tenant: Any) -> None:
    page = _page(client, "money", query="?month=2026-10")
    row = page[page.index(f"<strong>{tenant.slug}</strong>") :]
    assert "12.00 USD" in row
    assert 'data-label="Margin"' in row
    assert "Nothing fits" not in page
    assert "No tenant fits" in _page(client, "money", query="?q=nobody")
    for odd in ("?month=x", "?month=1000-01", "?month=9999-12"):
        _page(client, "money", query=odd)


def _draft(client: Client, tenant: Any) -> Invoice:
    form = {"tenant": tenant.slug, "month": "2026-10", "reason": "a look"}
    answer = client.post(reverse("operators:invoices"), form)
    assert answer.status_code == 302
    return Invoice.objects.get(tenant_id=tenant.id)


def test_an_invoice_from_draft_to_credit(client: Client, tenant: Any) -> None:
    draft = _draft(client, tenant)
    page = _page(client, "invoice", draft.public_id)
    (owner,) = tenant.memberships.all()
    assert f"mails it to {owner.user.email}" in page
    assert "Write the credit note" not in page

    def act(verb: str, **form: str) -> str:
        address = reverse("operators:invoice-act", args=[draft.public_id, verb])
        return client.post(address, form, follow=True).content.decode()

    assert "say why" in act("finalize")
    assert "cannot make the move pay" in act("pay", reason="early")
    assert "It is final." in act("finalize", reason="checked")
    draft.refresh_from_db()
    assert draft.number
    page = _page(client, "invoice", draft.public_id)
    assert "nothing of 12.00 USD is to be paid" in page
    assert "at most 12.00" in page
    assert "give an amount of at least one line" in act("credit", reason="late")
    assert "an amount such as 12.50" in act("credit", reason="late", **{"line-2": "much"})
    assert "a credit note says why" in act("credit", **{"line-2": "2"})
    assert "only 12.00 is left of line 2" in act("credit", reason="late", **{"line-2": "13"})
    assert "is written" in act("credit", reason="late", **{"line-2": "2.50", "line-1": ""})
    draft.refresh_from_db()
    assert draft.credited == 2.5
    assert "<h2>Void</h2>" not in _page(client, "invoice", draft.public_id)
    assert "is written" in act("credit", reason="all of it", all="on")
    draft.refresh_from_db()
    assert draft.state == "PAID"
    done = _actions("invoice.")
    assert [action for action, _ in done] == [
        "invoice.open", "invoice.finalize", "invoice.credit", "invoice.credit", "invoice.pay",
    ]  # fmt: skip
    assert [reason for _, reason in done[:4]] == ["a look", "checked", "late", "all of it"]
    listed = _page(client, "invoices", query=f"?tenant={tenant.slug}&state=PAID&month=2026-10")
    assert draft.number in listed
    assert draft.number not in _page(client, "invoices", query="?state=VOID")
    paper = client.get(reverse("operators:invoice-pdf", args=[draft.public_id]))
    assert paper.content[:5] == b"%PDF-"
    assert client.post(reverse("operators:invoice-act", args=[draft.public_id, "eat"])).status_code == 404
    assert client.get(reverse("operators:invoice", args=["ivc_nothing"])).status_code == 404


def test_what_cannot_be_drafted_is_said(client: Client, tenant: Any) -> None:
    for form, said in (
        ({"tenant": "nobody", "month": "2026-10"}, "no tenant has this slug"),
        ({"tenant": tenant.slug, "month": "soon"}, "a month: YYYY-MM"),
        ({"tenant": tenant.slug, "month": "2026-09"}, "2026-09 is not closed"),
    ):
        answer = client.post(reverse("operators:invoices"), {**form, "reason": "x"}, follow=True)
        assert said in answer.content.decode()
    assert not Invoice.objects.exists()


def _book(**changed: str) -> dict[str, str]:
    return {
        "name": "2099 list", "currency": "USD", "effective_from": "2099-01-01", "minimum": "0", "note": "",
        "metric-0": "job_runs", "policy-0": "*", "model-0": "unit", "amount-0": "24", "per-0": "1 000 000",
        **changed,
    }  # fmt: skip


def _seal(page: str) -> str:
    (found,) = re.findall(r'name="previewed" value="([0-9a-f]*)"', page)
    return str(found)


def test_a_price_book_is_saved_only_after_its_effect_was_seen(client: Client) -> None:
    last = (datetime.now(UTC).date().replace(day=1) - timedelta(days=1)).replace(day=1)
    other = TenantFactory()
    used(other, (last + timedelta(days=1), "job_runs", "HOME_ASYNC", 2_000_000))
    url = reverse("operators:price-new")
    assert "2026-01 list" not in client.get(url).content.decode()
    early = client.post(url, _book(verb="save", reason="a new year", previewed="x")).content.decode()
    assert "Nothing is saved yet" in early
    assert other.slug in early
    assert ChargeBook.objects.count() == 1
    dearer = client.post(
        url, _book(verb="save", reason="a new year", previewed=_seal(early), **{"amount-0": "25"})
    )
    assert b"Nothing is saved yet" in dearer.content
    silent = client.post(url, _book(verb="save", previewed=_seal(early)))
    assert (silent.status_code, b"Say why" in silent.content) == (422, True)
    done = client.post(url, _book(verb="save", reason="a new year", previewed=_seal(early)), follow=True)
    assert b"2099 list is saved" in done.content
    made = ChargeBook.objects.get(name="2099 list")
    assert made.prices == [
        {
            "metric": "job_runs",
            "region_policy": "*",
            "model": "unit",
            "included": 0,
            "amount": "24",
            "per": 1_000_000,
        }
    ]
    assert 'value="24"' in client.get(f"{url}?from={made.public_id}").content.decode()
    withdraw = reverse("operators:price-withdraw", args=[made.public_id])
    assert b"say why" in client.post(withdraw, follow=True).content
    assert b"is withdrawn" in client.post(withdraw, {"reason": "a slip"}, follow=True).content
    assert _actions("price_book") == [("price_book.create", "a new year"), ("price_book.withdraw", "a slip")]


def test_every_fault_of_a_book_is_named(client: Client) -> None:
    url = reverse("operators:price-new")
    typed = client.post(url, _book(verb="preview", **{"amount-0": "much", "per-0": "many"}))
    assert typed.status_code == 422
    assert "Price 1 (job runs), amount" in typed.content.decode()
    assert "many is no whole number" in typed.content.decode()
    assert 'value="much"' in typed.content.decode()
    wrong = client.post(url, _book(verb="preview", currency="usd", name="", minimum="1.001"))
    assert "is no currency of ISO 4217" in wrong.content.decode()
    assert client.post(url, _book(verb="preview", effective_from="soon")).status_code == 422
    seal = _seal(client.post(url, _book(verb="preview", effective_from="2026-01-02")).content.decode())
    past = client.post(url, _book(verb="save", effective_from="2026-01-02", previewed=seal, reason="x"))
    assert (past.status_code, b"must lie ahead" in past.content) == (422, True)


def test_a_contract_is_made_and_ended(client: Client, tenant: Any) -> None:
    url = reverse("operators:contract-new", args=[tenant.slug])
    form = {"effective_from": "2099-01-01", "effective_until": "", "minimum": "30", "note": "friends"}
    none = client.post(url, {**form, "minimum": "", "verb": "preview"})
    assert b"a contract promises prices, a minimum or both" in none.content
    seen = client.post(url, {**form, "verb": "preview"}).content.decode()
    assert "30.00" in seen
    assert not Contract.objects.exists()
    sent = {**form, "verb": "save", "previewed": _seal(seen), "reason": "agreed"}
    assert b"has this contract from 2099-01-01 on" in client.post(url, sent, follow=True).content
    made = Contract.objects.get(tenant_id=tenant.id)
    assert (made.minimum, made.note) == (30, "friends")
    assert "friends" in _page(client, "contracts", query=f"?tenant={tenant.slug}")
    end = reverse("operators:contract-end", args=[made.public_id])
    for wrong in (
        {},
        {"effective_until": "soon", "reason": "x"},
        {"effective_until": "2098-01-01", "reason": "x"},
    ):
        assert b"Nothing was changed" in client.post(end, wrong, follow=True).content
    assert (
        b"ends on 2099-06-01"
        in client.post(end, {"effective_until": "2099-06-01", "reason": "over"}, follow=True).content
    )
    assert _actions("contract.") == [("contract.create", "agreed"), ("contract.end", "over")]


def _conflict(tenant: Any, minute: int = 0) -> MeterConflict:
    key = {
        "tenant_id": tenant.id, "minute": datetime(2026, 11, 3, 0, minute, tzinfo=UTC), "metric": "job_runs",
        "region_policy": "HOME_ASYNC", "cell": "cell-1", "store": 0, "epoch": 1, "host": "h-1",
    }  # fmt: skip
    MeterRecord.objects.create(**key, quantity=5)
    return MeterConflict.objects.create(**key, recorded=5, refused=8)


def test_conflicts_are_settled_with_a_reason(client: Client, tenant: Any) -> None:
    kept, accepted = _conflict(tenant), _conflict(tenant, 1)
    page = _page(client, "meters")
    assert page.count("Correct it to 8") == 2

    def settle(conflict: MeterConflict, **form: str) -> str:
        url = reverse("operators:conflict-settle", args=[conflict.pk])
        return client.post(url, form, follow=True).content.decode()

    assert "/reason: is needed" in settle(kept, verb="keep")
    assert "what stood is right" in settle(kept, verb="keep", reason="seen")
    assert "it was settled by" in settle(kept, verb="accept", reason="again")
    assert "the ledger is corrected" in settle(accepted, verb="accept", reason="the host is right")
    assert client.post(reverse("operators:conflict-settle", args=[kept.pk]), {"verb": "x"}).status_code == 404
    assert (
        "no such conflict"
        in client.post(
            reverse("operators:conflict-settle", args=[10**18]), {"verb": "keep", "reason": "x"}, follow=True
        ).content.decode()
    )
    assert MeterConflict.objects.filter(settled_at=None).count() == 0
    events = AuditEvent.objects.filter(action="meter_conflict.settle", tenant_id=tenant.id).order_by("id")
    assert [(e.reason, e.after["quantity"]) for e in events] == [("seen", 5), ("the host is right", 8)]
    assert "None. One appears" in _page(client, "meters")


def test_drift_is_settled_with_a_reason(client: Client, tenant: Any) -> None:
    found = DriftFinding.objects.create(
        tenant_id=tenant.id, day=MONTH, cell="cell-1", metric="job_runs", region_policy="HOME_ASYNC",
        ledger=1, rollup=2, counted=3,
    )  # fmt: skip
    assert "the cell counted <strong>3</strong>" in _page(client, "meters")
    url = reverse("operators:drift-settle", args=[found.pk])
    client.post(url)
    found.refresh_from_db()
    assert found.settled_at is None
    client.post(url, {"reason": "a test cell"})
    found.refresh_from_db()
    assert found.settled_by.startswith("user:")
    assert _actions("drift") == [("drift.settle", "a test cell")]


def test_a_month_says_what_it_waits_for_and_is_closed_without(client: Client) -> None:
    tenant = TenantFactory()
    BillingPeriod.objects.create(
        tenant_id=tenant.id,
        month=date(2026, 9, 1),
        state="CLOSING",
        waits_for=["gone has sealed nothing yet"],
    )
    assert "gone has sealed nothing yet" in _page(client, "periods")
    assert "Every month is closed" not in _page(client, "periods")
    assert "No month fits" in _page(client, "periods", query="?month=2020-01")
    _page(client, "periods", query="?month=x&state=CLOSED")
    url = reverse("operators:period-close", args=[tenant.slug, "2026-09"])
    assert b"/reason: is needed" in client.post(url, follow=True).content
    assert b"is closed for good" in client.post(url, {"reason": "the cell burnt"}, follow=True).content
    assert BillingPeriod.objects.get(tenant_id=tenant.id).state == "CLOSED"
    assert "closed without a cell" not in _page(client, "periods")
    ahead = reverse("operators:period-close", args=[tenant.slug, "2099-01"])
    assert b"2099-01 is not over" in client.post(ahead, {"reason": "x"}, follow=True).content
    assert client.post(reverse("operators:period-close", args=[tenant.slug, "x"])).status_code == 404
    assert _actions("period.") == [("period.close", "the cell burnt")]
