"""What must not happen to money: lost, billed twice, told to nobody, or priced by nobody."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.test import Client
from django.urls import reverse

from billing.budgets import watching
from billing.hooks import BILLING
from billing.invoices import drafting, mails, settling, tasks
from billing.invoices.lines import canonical, described
from billing.invoices.models import Invoice, NothingDue, SentMail
from billing.models import ChargeBook
from billing.pricing import accounts, contracts, many
from billing.refusals import Conflicting, Invalid
from billing.stripe.comparing import settle_difference
from billing.stripe.models import StripeDifference
from controlplane.events.models import AuditEvent
from controlplane.tenants.models import User
from tests.component.billing.months import close, late, used
from tests.component.controlplane.factories import MembershipFactory, TenantFactory
from tests.component.controlplane.signed import operator

pytestmark = pytest.mark.django_db
SEPTEMBER, OCTOBER, NOVEMBER = date(2026, 9, 1), date(2026, 10, 1), date(2026, 11, 1)
NOW = datetime(2026, 12, 3, 12, tzinfo=UTC)
RUNS = ("job_runs", "HOME_ASYNC")
_BY: dict[str, Any] = {"actor": BILLING, "reason": "a test"}


@pytest.fixture
def tenant(control: None) -> Any:
    tenant = TenantFactory()
    MembershipFactory(tenant=tenant, role="owner")
    return tenant


def draft(tenant: Any, month: date) -> Invoice:
    close(tenant, month)
    found = drafting.open_draft(tenant_id=tenant.id, month=month, **_BY)
    assert found is not None
    return found


def final(invoice: Invoice) -> Invoice:
    return settling.finalize(invoice_id=invoice.id, now=NOW, **_BY)


def test_what_an_invoice_cannot_give_back_is_carried_over(tenant: Any) -> None:
    taxes = [{"name": "VAT", "rate": "0.25"}]
    accounts.edit_account(tenant_id=tenant.id, changes={"taxes": taxes}, **_BY)
    used(tenant, (SEPTEMBER, *RUNS, 3_100_000))
    assert final(draft(tenant, SEPTEMBER)).net == 36
    # A correction of September takes back 24; October has 12 of its own, November 60.
    late(tenant, OCTOBER, (SEPTEMBER, *RUNS, -2_000_000))
    used(tenant, (OCTOBER, *RUNS, 1_100_000), (NOVEMBER, *RUNS, 5_100_000))
    october, november = draft(tenant, OCTOBER), draft(tenant, NOVEMBER)
    with pytest.raises(Conflicting, match="2026-10 is to be final first"):
        final(november)
    october = final(october)
    assert (october.net, october.total, october.state) == (-12, -15, "PAID")
    november = final(november)
    line = drafting.stored_lines(november)[-2]
    assert (described(line), line.amount) == ("Carried over from the invoice for October 2026", "-12.00")
    assert (november.net, november.total, november.state) == (48, 60, "FINAL")
    assert canonical(drafting.rated_again(november)) == canonical(drafting.stored_lines(november))


def test_a_month_without_a_charge_carries_on_what_it_got(tenant: Any) -> None:
    late(tenant, OCTOBER, (SEPTEMBER, *RUNS, -2_000_000))
    used(tenant, (SEPTEMBER, *RUNS, 3_100_000))
    final(draft(tenant, SEPTEMBER))
    final(draft(tenant, OCTOBER))
    assert final(draft(tenant, NOVEMBER)).net == -24
    assert not NothingDue.objects.exists()


def test_a_month_of_nothing_is_looked_at_once(tenant: Any) -> None:
    close(tenant, NOVEMBER, at=NOW)
    assert list(drafting.to_be_drafted(NOW - timedelta(days=1))) == [(tenant.id, NOVEMBER)]
    assert tasks.draft_closed(NOW - timedelta(days=1)) == 0
    assert list(drafting.to_be_drafted(NOW - timedelta(days=1))) == []


def test_one_that_fails_keeps_nobody_from_a_draft(tenant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = TenantFactory()
    for each in (tenant, other):
        used(each, (NOVEMBER, *RUNS, 2_000_000))
        close(each, NOVEMBER, at=NOW)
    real, alone = many.stated, drafting.statement_of

    def stated(period: Any, used: Any, terms: Any, corrections: Any) -> Any:
        if terms.account.tenant_id == tenant.id:
            raise ValueError("a row nobody thought of")
        return real(period, used, terms, corrections)

    def statement_of(tenant_id: Any, *more: Any) -> Any:
        if tenant_id == tenant.id:
            raise ValueError("a row nobody thought of")
        return alone(tenant_id, *more)

    monkeypatch.setattr(many, "stated", stated)  # rated with the others, whom it takes with it
    monkeypatch.setattr(drafting, "statement_of", statement_of)  # and alone
    assert tasks.draft_closed(NOW - timedelta(days=1)) == 1
    assert Invoice.objects.get().tenant_id == other.id


def test_a_currency_stays_while_anything_was_said_in_it(tenant: Any) -> None:
    _book("EUR")
    watching.set_budget(tenant_id=tenant.id, amount="500", today=NOVEMBER, **_BY)
    contracts.create_contract(tenant_id=tenant.id, effective_from=NOVEMBER, minimum="500", **_BY)
    with pytest.raises(Conflicting, match="contracts and a budget in USD"):
        accounts.edit_account(tenant_id=tenant.id, changes={"currency": "EUR"}, **_BY)
    other = TenantFactory()
    accounts.edit_account(tenant_id=other.id, changes={"currency": "EUR"}, **_BY)
    assert accounts.account_of(other.id).currency == "EUR"


def test_a_currency_needs_prices_and_what_stripe_can_write(tenant: Any, settings: Any) -> None:
    with pytest.raises(Invalid, match="no price book in CHF is in force"):
        accounts.edit_account(tenant_id=tenant.id, changes={"currency": "CHF"}, **_BY)
    _book("KWD")
    settings.BILLING_STRIPE = {**settings.BILLING_STRIPE, "key": "sk_test"}
    with pytest.raises(Invalid, match="Stripe cannot write every amount in KWD"):
        accounts.edit_account(tenant_id=tenant.id, changes={"currency": "KWD"}, **_BY)
    settings.BILLING_STRIPE = {**settings.BILLING_STRIPE, "key": ""}
    accounts.edit_account(tenant_id=tenant.id, changes={"currency": "KWD"}, **_BY)


def test_usage_that_nobody_priced_is_an_error_and_not_free(tenant: Any, settings: Any) -> None:
    settings.BILLING_CURRENCY = "CHF"
    used(tenant, (NOVEMBER, *RUNS, 1))
    close(tenant, NOVEMBER)
    with pytest.raises(Conflicting, match="no price book in CHF"):
        drafting.open_draft(tenant_id=tenant.id, month=NOVEMBER, **_BY)
    assert not NothingDue.objects.exists()


def _book(currency: str) -> None:
    ChargeBook.objects.create(
        name=currency, currency=currency, effective_from=date(2026, 1, 1), prices=[], created_by="t"
    )


def test_an_invoice_to_nobody_is_not_noted_as_sent(control: None) -> None:
    tenant = TenantFactory()
    used(tenant, (NOVEMBER, *RUNS, 3_100_000))
    invoice = final(draft(tenant, NOVEMBER))
    mails.mail_invoice(str(invoice.id))
    assert not SentMail.objects.exists()
    assert AuditEvent.objects.get(action="mail.unaddressed").tenant_id == tenant.id
    MembershipFactory(tenant=tenant, role="owner")
    mails.mail_invoice(str(invoice.id))
    assert [sent.subject for sent in mail.outbox] == ["Invoice CH-000001 from Clockhouse"]


def test_months_that_cannot_be_are_refused(tenant: Any) -> None:
    asked = {"tenant_id": tenant.public_id, "month": "9999-12"}
    answer = operator().post("/v1/admin/invoices", asked)
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, "/month")


def test_a_book_told_again_as_it_is_stays_as_it_is(control: None) -> None:
    """Also in a database that ran the first migrations when their trigger was another."""
    source = "SELECT prosrc FROM pg_proc WHERE proname = 'billing_book_unchanged'"
    with connection.cursor() as cursor:
        cursor.execute(source)
        assert "created_at" in cursor.fetchone()[0]
    ChargeBook.objects.get().save()


# --- what operators do, and read ---------------------------------------------------------------
@pytest.fixture
def client(control: None) -> Client:
    staff = User.objects.create_user("op@example.com", "operator password", is_staff=True)
    client = Client()
    client.force_login(staff)
    return client


def _act(client: Client, model: str, action: str, *ids: object, **more: str) -> Any:
    form = {"action": action, "_selected_action": [str(i) for i in ids], "index": "0", **more}
    return client.post(reverse(f"admin:billing_{model}_changelist"), form)


def test_operators_see_numbers_and_say_why_before_invoices_move(client: Client, tenant: Any) -> None:
    used(tenant, (NOVEMBER, *RUNS, 3_100_000))
    other = TenantFactory()
    used(other, (NOVEMBER, *RUNS, 1_100_000))
    both = [draft(tenant, NOVEMBER).id, draft(other, NOVEMBER).id]
    for reason in ({}, {"reason": " "}):
        page = _act(client, "invoice", "finalize", *both, **reason)
        assert page.status_code == 200
        assert "2 invoices: 48.00 USD" in page.content.decode()
    assert Invoice.objects.filter(state="DRAFT").count() == 2
    assert _act(client, "invoice", "finalize", *both, reason="looked at").status_code == 302
    assert Invoice.objects.filter(state="FINAL").count() == 2
    events = AuditEvent.objects.filter(action="invoice.finalize")
    assert set(events.values_list("reason", flat=True)) == {"looked at"}


def test_differences_to_stripe_are_settled_by_a_person_with_a_reason(client: Client) -> None:
    row = StripeDifference.objects.create(kind="meter_error", subject="mtr_1", ours="0", theirs="3")
    assert "1 open differences" in _act(client, "stripedifference", "settle", row.pk).content.decode()
    assert _act(client, "stripedifference", "settle", row.pk, reason="sent again").status_code == 302
    row.refresh_from_db()
    assert row.settled_at is not None
    assert AuditEvent.objects.get(action="stripe_difference.settle").reason == "sent again"
    assert not settle_difference(difference_id=row.pk, actor=BILLING, reason="again")


def test_reading_of_money_is_in_the_tenants_audit_log(client: Client, tenant: Any) -> None:
    used(tenant, (NOVEMBER, *RUNS, 3_100_000))
    invoice = draft(tenant, NOVEMBER)
    reads = AuditEvent.objects.filter(tenant_id=tenant.id, action="operator.read")
    path = reverse("admin:billing_invoice_change", args=[invoice.pk])
    assert client.get(path).status_code == 200
    for asked in (
        f"/v1/admin/invoices/{invoice.public_id}",
        f"/v1/admin/invoices?tenant_id={tenant.public_id}",
    ):
        operator().get(asked)
    found = [(event.actor.partition(":")[0], (event.after or {})["first"]) for event in reads.order_by("id")]
    # One for each reader and hour.
    assert found == [("user", path), ("key", f"/v1/admin/invoices/{invoice.public_id}")]
    assert Decimal(operator().get(f"/v1/admin/invoices/{invoice.public_id}").json["total"]) == 36
