"""stripe-faults: usage and invoices are told to a Stripe that fails before the deed, behind it, or never
answers, in a third of all requests, and forgets identifiers now and then. In the end its meters say what ours
say, every invoice is there once with its total, every payment is heard once, and nothing differs."""

from __future__ import annotations

import random
import secrets
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import stripe
from django.test import Client

from tests.as_control_plane import stop_all_but_the_control_plane, use_control_plane
from tests.inhabited import operator_api
from tests.stack import Stack
from tests.stripe_standin import StripeStandIn

TENANTS = 8
ROUNDS = 40
SHARE = 0.34
SECRET = "whsec_of_the_proof"
METRICS = ("job_runs", "run_attempts", "stored_byte_minutes")

Json = dict[str, Any]


def main(tenants: int = TENANTS, rounds: int = ROUNDS, seed: int | None = None) -> Json:
    seed = secrets.randbelow(2**31) if seed is None else seed
    with Stack(environment={"CLOCKHOUSE_DEMO_JOBS": "0"}) as stack, StripeStandIn() as there:
        made = [_tenant(stack, n) for n in range(tenants)]
        stop_all_but_the_control_plane(stack)
        use_control_plane(
            stack,
            CONTROL_STRIPE_KEY="sk_test_proof",
            CONTROL_STRIPE_URL=there.url,
            CONTROL_STRIPE_WEBHOOK_SECRET=SECRET,
        )
        return {"seed": seed, **_run(there, random.Random(seed), made, rounds)}


def _tenant(stack: Stack, n: int) -> str:
    body = {
        "slug": f"stripe-{n}-{secrets.token_hex(3)}", "name": f"Stripe {n}",
        "cell": next(iter(stack.info["cells"])), "owner_email": f"stripe-{n}@example.com",
    }  # fmt: skip
    return str(operator_api(stack).call("POST", "/v1/admin/tenants", body)["tenant_id"])


def _run(there: StripeStandIn, source: random.Random, made: list[str], rounds: int) -> Json:
    from billing.ids import TENANT, decode
    from billing.models import BillingPeriod, UsageDay
    from billing.months import month_of
    from billing.stripe.comparing import compare_month
    from billing.stripe.metering import send_usage, totals_of
    from billing.stripe.models import StripeCursor, StripeCustomer, StripeDifference, StripeEvent

    tenants = [decode(TENANT, one) for one in made]
    today = datetime.now(UTC).date()
    this = month_of(today)
    last = month_of(this - timedelta(days=1))
    for tenant in tenants:
        UsageDay.objects.bulk_create(
            UsageDay(
                tenant_id=tenant, day=day, metric=metric, region_policy="HOME_ASYNC", cell="proof",
                quantity=source.randrange(10**6, 10**7), records=1,
            )
            for metric in METRICS for day in (this, last + timedelta(days=27))
        )  # fmt: skip
        BillingPeriod.objects.create(
            tenant_id=tenant, month=last, state="CLOSED", closed_at=datetime.now(UTC)
        )
    invoices = _invoices(tenants, last)
    there.fail_by_chance(source.randrange(2**31), SHARE)
    now = datetime.now(UTC)
    for n in range(rounds):
        for row in UsageDay.objects.filter(tenant_id__in=tenants, day=this):
            much = 10**16 if row.metric == "stored_byte_minutes" else 10**4
            UsageDay.objects.filter(pk=row.pk).update(quantity=row.quantity + source.randrange(much))
        _quietly(lambda: send_usage(now))
        for invoice in source.sample(invoices, len(invoices)):
            _push(invoice)
        if n % 10 == 9:
            there.forget_keys()
            StripeCursor.objects.exclude(pending=None).update(pending_since=now - timedelta(days=2))
    requests = sum(there.state.requests.values())
    there.fail_by_chance(0, 0)
    send_usage(now)
    for invoice in invoices:
        _push(invoice)
    heard = _pay(there, source)
    for invoice in invoices:
        _push(invoice)
    customers = dict(StripeCustomer.objects.values_list("tenant_id", "customer"))
    wanted = {
        (f"clockhouse_{metric}_{policy}".lower(), customers[tenant]): sum(
            totals_of(tenant, month).get((metric, policy), 0) for month in (last, this)
        )
        for tenant in tenants
        for metric, policy in totals_of(tenant, this)
    }
    differences = compare_month(this) + compare_month(last)
    for row in StripeDifference.objects.filter(settled_at=None):
        print(row, file=sys.stderr)
    paid = [i["status"] for i in there.all("invoice")].count("paid")
    return {
        "holds": there.sums() == wanted and differences == 0
        and len(there.all("invoice")) == len(invoices) == paid
        and len(there.all("customer")) == len(tenants)
        and StripeEvent.objects.count() == len(invoices) == heard,
        "tenants": len(tenants),
        "requests": requests,
        "meter_events": len(there.state.events),
        "duplicates_refused_by_stripe": there.state.duplicates,
        "sums_equal": sum(there.sums().get(key) == total for key, total in wanted.items()),
        "sums": len(wanted),
        "invoices_there": len(there.all("invoice")),
        "payments_heard": heard,
        "differences": differences,
    }  # fmt: skip


def _invoices(tenants: list[Any], month: Any) -> list[Any]:
    from billing.hooks import BILLING
    from billing.invoices import drafting, settling

    by: Json = {"actor": BILLING, "reason": "a proof"}
    found = []
    for tenant in tenants:
        draft = drafting.open_draft(tenant_id=tenant, month=month, **by)
        if draft is not None:
            found.append(settling.finalize(invoice_id=draft.id, now=datetime.now(UTC), **by))
    return found


def _quietly(act: Any) -> None:
    """What fails is written down and told again; here nobody needs to hear of it."""
    try:
        act()
    except stripe.StripeError:
        return


def _push(invoice: Any) -> None:
    from billing.stripe.invoicing import push_invoice

    _quietly(lambda: push_invoice(str(invoice.id)))


def _pay(there: StripeStandIn, source: random.Random) -> int:
    """Stripe says of every invoice that it was paid, up to four times, in any order; how many were taken."""
    events = []
    for n, invoice in enumerate(there.all("invoice")):
        with there._lock:
            invoice["status"] = "paid"
        event = {
            "id": f"evt_{n}", "object": "event", "type": "invoice.paid", "created": 1,
            "data": {"object": invoice},
        }  # fmt: skip
        events += [event] * source.randrange(1, 5)
    source.shuffle(events)
    taken = 0
    for event in events:
        body, signature = there.signed(event, SECRET)
        answer = Client().generic(
            "POST", "/webhooks/stripe", body, content_type="application/json",
            headers={"Stripe-Signature": signature, "Host": "127.0.0.1"},
        )  # fmt: skip
        taken += answer.status_code == 200 and answer.json()["taken"]
    return taken
