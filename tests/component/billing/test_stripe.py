"""Stripe through its own package, against a stand-in that does wrong on demand."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
import stripe
from django.test import Client

from billing.hooks import BILLING
from billing.invoices import drafting, settling
from billing.invoices.models import Invoice
from billing.models import UsageDay
from billing.stripe import comparing, invoicing, metering, webhooks
from billing.stripe.connecting import connect
from billing.stripe.models import StripeCursor, StripeDifference, StripeEvent, StripeInvoice
from controlplane.events.models import OutboxItem
from tests.component.billing.months import close, used
from tests.component.controlplane.factories import MembershipFactory, TenantFactory
from tests.stripe_standin import StripeStandIn

MONTH = date(2026, 11, 1)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
RUNS = ("job_runs", "HOME_ASYNC")
SECRET = "whsec_of_tests"
_BY: dict[str, Any] = {"actor": BILLING, "reason": "a test"}


@pytest.fixture
def there(control: None, settings: Any) -> Iterator[StripeStandIn]:
    with StripeStandIn() as there:
        there.now = NOW.timestamp
        settings.BILLING_STRIPE = {"key": "sk_test_1", "webhook_secret": SECRET, "url": there.url}
        yield there


@pytest.fixture
def tenant(control: None) -> Any:
    tenant = TenantFactory()
    MembershipFactory(tenant=tenant, role="owner")
    used(tenant, (MONTH, *RUNS, 1000), (MONTH, "run_attempts", "HOME_ASYNC", 1500))
    return tenant


def more(tenant: Any, quantity: int) -> None:
    UsageDay.objects.filter(tenant_id=tenant.id, metric="job_runs").update(quantity=quantity)


def told(there: StripeStandIn) -> dict[str, int]:
    return {name: total for (name, _), total in there.sums().items()}


def final(tenant: Any) -> Invoice:
    more(tenant, 3_100_000)
    close(tenant, MONTH)
    draft = drafting.open_draft(tenant_id=tenant.id, month=MONTH, **_BY)
    assert draft is not None
    return settling.finalize(invoice_id=draft.id, now=NOW, **_BY)


@pytest.mark.django_db
def test_every_address_is_the_stand_ins(there: StripeStandIn) -> None:
    addresses = connect()._requestor._options.base_addresses
    assert {addresses[name] for name in ("api", "connect", "files", "meter_events")} == {there.url}


@pytest.mark.django_db
def test_only_the_difference_is_told(there: StripeStandIn, tenant: Any) -> None:
    assert metering.send_usage(NOW) == 2
    assert told(there) == {"clockhouse_job_runs_home_async": 1000, "clockhouse_run_attempts_home_async": 1500}
    assert metering.send_usage(NOW) == 0
    more(tenant, 1700)
    assert metering.send_usage(NOW) == 1
    assert told(there)["clockhouse_job_runs_home_async"] == 1700
    cursor = StripeCursor.objects.get(metric="job_runs")
    assert (cursor.sent, cursor.steps, cursor.pending) == (1700, 2, None)
    assert all(len(identifier) <= 100 for identifier in there.state.events)


@pytest.mark.django_db
@pytest.mark.parametrize("how", ["lost", "broken", "refused"])
def test_whatever_happens_to_a_step_it_counts_once(there: StripeStandIn, tenant: Any, how: str) -> None:
    there.fail("POST", "/v1/billing/meter_events", how)
    metering.send_usage(NOW)
    # The usage grew before the step was told again: it is the same step all the same.
    more(tenant, 2500)
    metering.send_usage(NOW)
    metering.send_usage(NOW)
    assert told(there)["clockhouse_job_runs_home_async"] == 2500
    assert there.state.duplicates == (0 if how == "refused" else 1)
    assert not StripeCursor.objects.exclude(pending=None).exists()


@pytest.mark.django_db
def test_a_step_told_so_long_ago_that_stripe_forgot_it_is_looked_up(
    there: StripeStandIn, tenant: Any
) -> None:
    there.fail("POST", "/v1/billing/meter_events", "lost")
    metering.send_usage(NOW)
    there.forget_keys()
    StripeCursor.objects.exclude(pending=None).update(pending_since=NOW - timedelta(days=3))
    metering.send_usage(NOW)
    assert told(there) == {"clockhouse_job_runs_home_async": 1000, "clockhouse_run_attempts_home_async": 1500}
    assert not StripeCursor.objects.exclude(pending=None).exists()


@pytest.mark.django_db
def test_values_of_more_than_fifteen_digits_go_in_steps(there: StripeStandIn, tenant: Any) -> None:
    much = 2 * 10**15 + 5
    more(tenant, much)
    metering.send_usage(NOW)
    assert told(there)["clockhouse_job_runs_home_async"] == much
    assert StripeCursor.objects.get(metric="job_runs").steps == 3


@pytest.mark.django_db
def test_a_tenant_that_fails_keeps_nobody_else_waiting(there: StripeStandIn, tenant: Any) -> None:
    other = TenantFactory()
    used(other, (MONTH, *RUNS, 7))
    there.fail("POST", "/v1/customers", "refused")
    metering.send_usage(NOW)
    assert sum(there.sums().values()) in (7, 2500)
    metering.send_usage(NOW)
    assert sum(there.sums().values()) == 2507


@pytest.mark.django_db
def test_a_step_that_could_not_be_told_for_weeks_is_told_within_what_stripe_takes(
    there: StripeStandIn, tenant: Any
) -> None:
    later, begun = datetime(2026, 12, 7, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
    there.now = later.timestamp
    StripeCursor.objects.create(
        tenant_id=tenant.id, month=MONTH, metric=RUNS[0], region_policy=RUNS[1], pending=400,
        pending_at=begun, pending_since=begun,
    )  # fmt: skip
    metering.send_usage(later)
    cursor = StripeCursor.objects.get(metric=RUNS[0])
    assert (cursor.sent, cursor.steps, cursor.error) == (1000, 2, "")


@pytest.mark.django_db
def test_where_stripe_is_away_one_is_asked_and_no_more(tenant: Any, settings: Any) -> None:
    used(TenantFactory(), (MONTH, *RUNS, 7))
    with StripeStandIn() as gone:
        url = gone.url
    settings.BILLING_STRIPE = {"key": "sk_test_1", "webhook_secret": SECRET, "url": url}
    assert metering.send_usage(NOW) == 0
    assert StripeCursor.objects.values("tenant_id").distinct().count() == 1
    assert metering.send_usage(NOW, patience=-1) == 0


@pytest.mark.django_db
def test_a_customer_deleted_at_stripe_keeps_nobody_from_being_compared(
    there: StripeStandIn, tenant: Any
) -> None:
    invoice = final(tenant)
    invoicing.push_invoice(str(invoice.id))
    StripeInvoice.objects.update(stripe_id="in_gone")
    other = TenantFactory()
    used(other, (MONTH, *RUNS, 3_100_000))
    final(other)
    assert comparing.compare_month(MONTH) == 1  # the other's invoice, which is not there yet


@pytest.mark.django_db
def test_an_invoice_is_made_finalised_and_can_be_paid_there(there: StripeStandIn, tenant: Any) -> None:
    invoice = final(tenant)
    assert OutboxItem.objects.filter(topic="stripe_invoice", subject=str(invoice.id)).exists()
    invoicing.push_invoice(str(invoice.id))
    invoicing.push_invoice(str(invoice.id))
    (made,) = there.all("invoice")
    assert (made["status"], made["total"], made["metadata"]["number"]) == ("open", 3600, "CH-000001")
    assert len(there.all("invoiceitem")) == 1
    row = StripeInvoice.objects.get()
    assert (row.state, row.payment_url) == ("open", f"{there.url}/pay/{made['id']}")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path", ["/v1/customers", "/v1/invoices", "/v1/invoiceitems", "/v1/invoices/in_.*/finalize"]
)
@pytest.mark.parametrize("how", ["lost", "broken", "refused"])
@pytest.mark.parametrize("forgets", [False, True])
def test_an_invoice_is_there_once_whatever_failed(
    there: StripeStandIn, tenant: Any, path: str, how: str, forgets: bool
) -> None:
    invoice = final(tenant)
    there.fail("POST", path, how)
    with pytest.raises(stripe.StripeError):
        invoicing.push_invoice(str(invoice.id))
    if forgets:
        there.forget_keys()
    invoicing.push_invoice(str(invoice.id))
    assert [(i["status"], i["total"]) for i in there.all("invoice")] == [("open", 3600)]
    assert len(there.all("customer")) == 1


@pytest.mark.django_db
def test_states_and_credit_notes_follow_ours(there: StripeStandIn, tenant: Any) -> None:
    invoice = final(tenant)
    settling.credit(invoice_id=invoice.id, lines=[{"n": 2, "amount": "6"}], now=NOW, **_BY)
    invoicing.push_invoice(str(invoice.id))
    assert [n["amount"] for n in there.all("credit_note")] == [600]
    settling.pay(invoice_id=invoice.id, now=NOW, **_BY)
    invoicing.push_invoice(str(invoice.id))
    settling.credit(invoice_id=invoice.id, lines=[{"n": 2, "amount": "1"}], now=NOW, **_BY)
    invoicing.push_invoice(str(invoice.id))
    assert there.all("invoice")[0]["status"] == "paid"
    assert [n["amount"] for n in there.all("credit_note")] == [600, 100]


def event(kind: str, there: dict[str, Any], number: int = 1) -> dict[str, Any]:
    created = int(NOW.timestamp())
    return {
        "id": f"evt_{number}",
        "object": "event",
        "type": kind,
        "created": created,
        "data": {"object": there},
    }


def deliver(body: bytes, signature: str) -> Any:
    return Client().generic(
        "POST", "/webhooks/stripe", body, content_type="application/json",
        headers={"Stripe-Signature": signature},
    )  # fmt: skip


@pytest.mark.django_db
def test_a_payment_is_heard_once_and_only_if_signed(there: StripeStandIn, tenant: Any) -> None:
    invoice = final(tenant)
    invoicing.push_invoice(str(invoice.id))
    made = there.all("invoice")[0]
    there.now = lambda: datetime.now(UTC).timestamp()
    paid = event("invoice.paid", {**made, "status": "paid"})
    body, signature = there.signed(paid, SECRET)
    forged = deliver(body, there.signed(paid, "whsec_other")[1])
    stale = deliver(body, there.signed(paid, SECRET, at=int(there.now()) - 4000)[1])
    assert (forged.status_code, stale.status_code, StripeEvent.objects.count()) == (400, 400, 0)
    assert deliver(body, signature).json() == {"taken": True}
    assert deliver(body, signature).json() == {"taken": False}
    assert Invoice.objects.get().state == "PAID"
    assert StripeEvent.objects.get().outcome == "paid"


@pytest.mark.django_db
def test_what_is_no_event_is_refused(there: StripeStandIn) -> None:
    there.now = lambda: datetime.now(UTC).timestamp()
    for document in ({}, {"id": "evt_1"}, [1]):
        body, signature = there.signed(document, SECRET)  # type: ignore[arg-type]
        assert deliver(body, signature).status_code == 400
    assert not StripeEvent.objects.exists()


@pytest.mark.django_db
def test_a_fault_of_ours_is_none_of_the_events(there: StripeStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    there.now = lambda: datetime.now(UTC).timestamp()

    def fails(*_: object) -> str:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(webhooks, "_act", fails)
    body, signature = there.signed(event("invoice.paid", {"id": "in_1"}), SECRET)
    with pytest.raises(ValueError, match="a fault of ours"):  # logged, and answered by a 500
        deliver(body, signature)
    assert not StripeEvent.objects.exists()


@pytest.mark.django_db
def test_money_for_a_void_invoice_is_a_difference(there: StripeStandIn, tenant: Any) -> None:
    invoice = final(tenant)
    invoicing.push_invoice(str(invoice.id))
    settling.void(invoice_id=invoice.id, now=NOW, **_BY)
    there.now = lambda: datetime.now(UTC).timestamp()
    body, signature = there.signed(event("invoice.paid", there.all("invoice")[0]), SECRET)
    assert deliver(body, signature).status_code == 200
    difference = StripeDifference.objects.get()
    assert (difference.subject, difference.ours, difference.theirs) == ("CH-000001", "VOID", "PAID")


@pytest.mark.django_db
def test_differences_are_listed_until_they_are_gone(there: StripeStandIn, tenant: Any) -> None:
    metering.send_usage(NOW)
    invoice = final(tenant)
    assert comparing.compare_month(MONTH) == 2  # usage that is not told, an invoice that is not there
    assert comparing.compare_month(MONTH) == 2
    assert StripeDifference.objects.count() == 2
    metering.send_usage(NOW)
    invoicing.push_invoice(str(invoice.id))
    assert comparing.compare_month(MONTH) == 0
    assert not StripeDifference.objects.filter(settled_at=None).exists()
    there.state.events.popitem()
    assert comparing.compare_month(MONTH) == 1


@pytest.mark.django_db
def test_without_a_key_nothing_is_wanted_and_everything_else_works(tenant: Any, settings: Any) -> None:
    settings.BILLING_STRIPE = {"key": "", "webhook_secret": "", "url": ""}
    invoice = final(tenant)
    assert invoice.number == "CH-000001"
    assert not OutboxItem.objects.filter(topic="stripe_invoice").exists()
    invoicing.push_invoice(str(invoice.id))
    assert deliver(b"{}", "t=1,v1=0").status_code == 404


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(3))
def test_faults_by_chance_leave_no_difference(there: StripeStandIn, tenant: Any, seed: int) -> None:
    source = random.Random(seed)
    before = date(2026, 10, 1)
    used(tenant, (before + timedelta(days=27), *RUNS, 3_100_000))
    close(tenant, before)
    draft = drafting.open_draft(tenant_id=tenant.id, month=before, **_BY)
    assert draft is not None
    invoice = settling.finalize(invoice_id=draft.id, now=NOW, **_BY)
    used(tenant, (date(2026, 11, 2), "stored_byte_minutes", "HOME_ASYNC", 10**16 + seed))
    there.fail_by_chance(seed, 0.4)
    for n in range(12):
        metering.send_usage(NOW)
        try:
            invoicing.push_invoice(str(invoice.id))
        except stripe.StripeError:
            assert StripeInvoice.objects.filter(error="").count() <= 1
        if n % 4 == 3:
            there.forget_keys()
            StripeCursor.objects.exclude(pending=None).update(pending_since=NOW - timedelta(days=2))
        UsageDay.objects.filter(metric="stored_byte_minutes").update(
            quantity=10**16 * (n + 2) + source.randrange(99)
        )
    there.fail_by_chance(0, 0)
    metering.send_usage(NOW)
    invoicing.push_invoice(str(invoice.id))
    found = comparing.compare_month(MONTH) + comparing.compare_month(before)
    assert (
        list(StripeDifference.objects.filter(settled_at=None).values_list("subject", "ours", "theirs")) == []
    )
    assert found == 0
