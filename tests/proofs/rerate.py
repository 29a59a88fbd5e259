"""rerate: two months of tenants with random prices are charged, with usage that came late for the first. A
calculation that shares no code with ours comes to the same totals; running every task again, and rating
every invoice again, changes not one byte of what is stored or printed."""

from __future__ import annotations

import hashlib
import random
import secrets
import sys
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from typing import Any

import psycopg

from tests.as_control_plane import stop_all_but_the_control_plane, use_control_plane
from tests.inhabited import operator_api
from tests.stack import Stack

TENANTS = 60
FIRST, SECOND, AFTER = date(2026, 2, 1), date(2026, 3, 1), date(2026, 4, 1)
METRICS = ("job_runs", "run_attempts", "workflow_steps", "api_requests")
POLICIES = ("HOME_ASYNC", "STRICT")
CELL = "rerate-cell"
#: What a closed month, and what was charged for it, consists of.
KEPT = (
    "billing_meter_record",
    "billing_usage_hour",
    "billing_usage_day",
    "billing_usage_month",
    "billing_period",
    "billing_usage_adjustment",
    "billing_invoice",
    "billing_invoice_line",
    "billing_credit_note",
    "billing_number_series",
    "billing_charge_book",
    "billing_contract",
    "billing_sent_mail",
)

Used = dict[tuple[date, str, str], int]
Json = dict[str, Any]


def main(tenants: int = TENANTS, seed: int | None = None) -> Json:
    seed = secrets.randbelow(2**31) if seed is None else seed
    with Stack(environment={"CLOCKHOUSE_DEMO_JOBS": "0"}) as stack:
        made = [_tenant(stack, n) for n in range(tenants)]
        stop_all_but_the_control_plane(stack)
        use_control_plane(stack)
        with psycopg.connect(stack.info["control_database_url"], autocommit=True) as connection:
            return {"seed": seed, **_run(connection, random.Random(seed), made)}


def _tenant(stack: Stack, n: int) -> str:
    body = {
        "slug": f"rerate-{n}-{secrets.token_hex(3)}", "name": f"Rerate {n}",
        "cell": next(iter(stack.info["cells"])), "owner_email": f"rerate-{n}@example.com",
    }  # fmt: skip
    return str(operator_api(stack).call("POST", "/v1/admin/tenants", body)["tenant_id"])


def _run(connection: psycopg.Connection[Any], source: random.Random, made: list[str]) -> Json:
    from billing.ids import TENANT, decode
    from billing.invoices.drafting import rated_again, stored_lines
    from billing.invoices.lines import canonical
    from billing.invoices.models import Invoice
    from billing.invoices.pdf import invoice_pdf

    tenants = [decode(TENANT, one) for one in made]
    terms = {t: _promise(t, source) for t in tenants}
    usage = {(t, m): _usage(source, m) for t in tenants for m in (FIRST, SECOND)}
    late = {t: _usage(source, FIRST, days=3) for t in tenants}
    for tenant in tenants:
        _count(tenant, usage[tenant, FIRST], "h-1")
    _add_up_and_close(SECOND)
    for tenant in tenants:
        _count(tenant, usage[tenant, SECOND], "h-1")
        _count(tenant, late[tenant], "h-late")
    _add_up_and_close(AFTER)
    _tasks()
    invoices = list(Invoice.objects.order_by("sequence"))
    wrong = [
        str(invoice)
        for invoice in invoices
        if Fraction(invoice.total) != _independent(invoice, terms, usage, late)
    ]
    before = _fingerprint(connection)
    papers = {i.id: invoice_pdf(i, stored_lines(i)) for i in invoices}
    rated = [canonical(rated_again(i)) == canonical(stored_lines(i)) for i in invoices]
    for tenant in tenants:
        _mark(tenant, FIRST, AFTER)
    for _ in range(2):
        _add_up_and_close(AFTER)
        _tasks()
    after = _fingerprint(connection)
    again = {i.id: invoice_pdf(i, stored_lines(i)) for i in Invoice.objects.all()}
    changed = [table for table in KEPT if before[table] != after[table]]
    print(wrong, changed, file=sys.stderr)
    numbers = [i.sequence for i in invoices]
    return {
        "holds": not wrong and not changed and all(rated) and papers == again
        and len(invoices) == 2 * len(tenants)
        and numbers == list(range(1, len(numbers) + 1)),
        "tenants": len(tenants),
        "invoices": len(invoices),
        "lines": sum(i.lines.count() for i in invoices),
        "adjustments": sum(i.lines.filter(kind="adjustment").count() for i in invoices),
        "differ_from_the_independent_calculation": len(wrong),
        "rated_again_equal": sum(rated),
        "tables_compared": len(KEPT),
        "tables_changed": changed,
    }  # fmt: skip


def _fingerprint(connection: psycopg.Connection[Any]) -> dict[str, str]:
    found = {}
    for table in KEPT:
        # Months behind those that were charged go on to be opened and closed.
        kept = "WHERE month < '2026-04-01'" if table == "billing_period" else ""
        rows = connection.execute(f"SELECT to_jsonb(t)::text FROM {table} t {kept}").fetchall()  # noqa: S608
        found[table] = hashlib.sha256("\n".join(sorted(row[0] for row in rows)).encode()).hexdigest()
    return found


# --- what happened -------------------------------------------------------------------------
def _usage(source: random.Random, month: date, days: int = 12) -> Used:
    found: Used = {}
    for _ in range(days):
        day = month + timedelta(days=source.randrange(28))
        key = (day, source.choice(METRICS), source.choice(POLICIES))
        found[key] = source.randrange(1, 10 ** source.randrange(2, 8))
    return found


def _count(tenant: Any, used: Used, host: str) -> None:
    """Meter records of a minute of each day, as a cell's ingestion leaves them."""
    from billing.models import MeterRecord

    MeterRecord.objects.bulk_create(
        MeterRecord(
            tenant_id=tenant, minute=datetime.combine(day, time(7), UTC), metric=metric,
            region_policy=policy, cell=CELL, store=0, epoch=1, host=host, quantity=quantity,
        )
        for (day, metric, policy), quantity in used.items()
    )  # fmt: skip
    _mark(tenant, min(day for day, _, _ in used), max(day for day, _, _ in used) + timedelta(days=1))


def _mark(tenant: Any, since: date, until: date) -> None:
    from billing.models import ALL_HOURS, DirtyDay

    DirtyDay.objects.bulk_create(
        (
            DirtyDay(tenant_id=tenant, day=since + timedelta(days=n), marks=1, hours=ALL_HOURS)
            for n in range((until - since).days)
        ),
        ignore_conflicts=True,
    )


def _add_up_and_close(until: date) -> None:
    from billing import periods, rollup
    from billing.watermarks import raise_watermarks

    while rollup.recompute_dirty():
        pass
    raise_watermarks(CELL, [(0, 1, f"{until:%Y-%m-%dT01:00:00Z}")])
    periods.close_due()


def _tasks() -> None:
    from billing.budgets.watching import watch_all
    from billing.invoices.tasks import draft_closed, finalize_drafts
    from controlplane.events.models import OutboxItem
    from controlplane.events.outbox import run_item

    now = datetime.now(UTC)
    draft_closed(now - timedelta(days=70))
    finalize_drafts(now + timedelta(days=10))
    watch_all(now)
    for item in OutboxItem.objects.filter(topic__startswith="billing_").order_by("id"):
        run_item(item.id)


# --- what is charged, said twice: as documents for us, as plainly as possible here -----------
def _promise(tenant: Any, source: random.Random) -> Json:
    """A contract with a price for each metric, from the first month on; and a tax, sometimes."""
    from billing.hooks import BILLING
    from billing.pricing.accounts import edit_account
    from billing.pricing.contracts import create_contract

    prices = [_price(source, metric) for metric in METRICS]
    # The book has a price of its own for STRICT runs, which a price for any policy leaves alone.
    prices.append({**prices[0], "region_policy": "STRICT"})
    minimum = source.choice([None, "10", "500"])
    tax = source.choice(["0", "0.19", "0.077"])
    by: Json = {"actor": BILLING, "reason": "a proof"}
    create_contract(
        tenant_id=tenant, effective_from=FIRST, effective_until=AFTER, prices=prices, minimum=minimum, **by
    )
    if tax != "0":
        edit_account(tenant_id=tenant, changes={"taxes": [{"name": "VAT", "rate": tax}]}, **by)
    return {"prices": {p["metric"]: p for p in prices}, "minimum": minimum or "0", "tax": tax}


def _price(source: random.Random, metric: str) -> Json:
    model = source.choice(["unit", "package", "graduated", "volume"])
    found: Json = {"metric": metric, "model": model, "included": source.choice([0, 1000, 123_457])}

    def amount() -> str:
        return f"{source.randrange(0, 50)}.{source.randrange(10**4):04}"

    if model == "unit":
        return found | {"amount": amount(), "per": source.choice([1000, 7919, 1_000_000])}
    if model == "package":
        return found | {"amount": amount(), "size": source.choice([1000, 50_021])}
    ends = sorted(source.sample(range(1, 3_000_000), 2))
    tiers = [{"up_to": end, "amount": amount(), "per": 10_000} for end in (*ends, None)]
    return found | {"tiers": tiers}


def _cost(price: Json, quantity: int) -> Fraction:
    units = max(0, quantity - price["included"])
    if price["model"] == "unit":
        return units * Fraction(price["amount"]) / price["per"]
    if price["model"] == "package":
        return -(-units // price["size"]) * Fraction(price["amount"])
    total, before = Fraction(0), 0
    for tier in price["tiers"]:
        end = 10**30 if tier["up_to"] is None else tier["up_to"]
        rate = Fraction(tier["amount"]) / tier["per"]
        if price["model"] == "volume":
            if units <= end:
                return units * rate
        else:
            total += max(0, min(units, end) - before) * rate
            before = end
    return total


def _month(terms: Json, *parts: Used) -> Fraction:
    """What a month comes to before rounding and taxes."""
    sums: dict[tuple[str, str], int] = {}
    for used in parts:
        for (_, metric, policy), quantity in used.items():
            sums[metric, policy] = sums.get((metric, policy), 0) + quantity
    total = sum((_cost(terms["prices"][m], q) for (m, _), q in sums.items()), Fraction(0))
    return max(total, Fraction(terms["minimum"]))


def _cents(exact: Fraction) -> Fraction:
    return Fraction(round(exact * 100), 100)  # half to even


def _independent(invoice: Any, terms: Json, usage: Json, late: Json) -> Fraction:
    tenant, mine = invoice.tenant_id, terms[invoice.tenant_id]
    exact = _month(mine, usage[tenant, invoice.period_start])
    if invoice.period_start == SECOND:
        first = usage[tenant, FIRST]
        exact += _month(mine, first, late[tenant]) - _month(mine, first)
    net = _cents(exact)
    return net + _cents(net * Fraction(mine["tax"]))
