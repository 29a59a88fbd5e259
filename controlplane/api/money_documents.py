"""What the API shows of prices, forecasts and budgets. Amounts are text."""

from __future__ import annotations

from datetime import date
from typing import Any

from rest_framework import serializers

from billing.budgets.forecasts import Forecast, ScheduleForecast
from billing.budgets.watching import BudgetState
from billing.charging.charge import Statement
from billing.charging.documents import shown
from billing.ids import TENANT, encode
from billing.invoices.lines import lines_of
from billing.pricing.accounts import Account, shown_taxes
from billing.pricing.books import described as described_book
from billing.pricing.contracts import described as described_contract
from billing.pricing.models import ChargeBook, Contract
from billing.pricing.preview import Preview
from controlplane.api.documents import Document
from controlplane.api.invoice_documents import InvoiceLineDocument, instant, money, show_line


class PriceTierDocument(Document):
    up_to = serializers.IntegerField(allow_null=True)
    amount = serializers.CharField()
    per = serializers.IntegerField()


class PriceDocument(Document):
    metric = serializers.CharField()
    region_policy = serializers.CharField()
    model = serializers.CharField()
    included = serializers.IntegerField()
    amount = serializers.CharField(required=False)
    per = serializers.IntegerField(required=False)
    size = serializers.IntegerField(required=False)
    tiers = PriceTierDocument(many=True, required=False)


class PriceBookDocument(Document):
    price_book_id = serializers.CharField()
    name = serializers.CharField()
    currency = serializers.CharField()
    effective_from = serializers.DateField()
    minimum = serializers.CharField()
    prices = PriceDocument(many=True)
    note = serializers.CharField()
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField()


class PricedChangeDocument(Document):
    tenant_id = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()


class PricePreviewDocument(Document):
    """What tenants paid for the month before taxes, and what they would have; `changes` names those
    whose bill changes most."""

    month = serializers.CharField()
    currency = serializers.CharField()
    tenants = serializers.IntegerField()
    more = serializers.IntegerField()
    less = serializers.IntegerField()
    before = serializers.CharField()
    after = serializers.CharField()
    changes = PricedChangeDocument(many=True)


class ContractDocument(Document):
    contract_id = serializers.CharField()
    tenant_id = serializers.CharField()
    effective_from = serializers.DateField()
    effective_until = serializers.DateField(allow_null=True)
    minimum = serializers.CharField(allow_null=True)
    prices = PriceDocument(many=True)
    note = serializers.CharField()
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField()


class TaxDocument(Document):
    name = serializers.CharField()
    rate = serializers.CharField()


class BillingAccountDocument(Document):
    tenant_id = serializers.CharField()
    currency = serializers.CharField()
    legal_name = serializers.CharField()
    address = serializers.CharField()
    tax_id = serializers.CharField()
    emails = serializers.ListField(child=serializers.CharField())
    taxes = TaxDocument(many=True)
    version = serializers.IntegerField()


class StatementDocument(Document):
    currency = serializers.CharField()
    net = serializers.CharField()
    taxes = serializers.CharField()
    total = serializers.CharField()
    lines = InvoiceLineDocument(many=True)


class ForecastDocument(Document):
    """The month so far, and as it is expected to end by the mean of the last seven days."""

    month = serializers.CharField()
    today = serializers.DateField()
    so_far = StatementDocument()
    expected = StatementDocument()


class BudgetAlertDocument(Document):
    threshold = serializers.IntegerField()
    spent = serializers.CharField()
    at = serializers.DateTimeField()


class BudgetDocument(Document):
    """`spent` is this month's so far, before taxes."""

    amount = serializers.CharField()
    currency = serializers.CharField()
    capped = serializers.BooleanField()
    grace_hours = serializers.IntegerField()
    month = serializers.CharField()
    spent = serializers.CharField()
    percent = serializers.IntegerField()
    alerts = BudgetAlertDocument(many=True)
    low_delayed_since = serializers.DateTimeField(allow_null=True)
    version = serializers.IntegerField()


class AddedPartDocument(Document):
    metric = serializers.CharField()
    quantity = serializers.IntegerField()
    exact = serializers.CharField()


class ScheduleForecastDocument(Document):
    """What a schedule adds to the bill of the 30 days to come, before taxes."""

    since = serializers.DateField()
    days = serializers.IntegerField()
    occurrences = serializers.IntegerField()
    attempts = serializers.IntegerField()
    currency = serializers.CharField()
    total = serializers.CharField()
    exact = serializers.CharField()
    parts = AddedPartDocument(many=True)


def _month(month: date) -> str:
    return f"{month:%Y-%m}"


def show_book(row: ChargeBook) -> dict[str, Any]:
    return {
        "price_book_id": row.public_id,
        **described_book(row),
        "created_at": instant(row.created_at),
        "created_by": row.created_by,
    }


def show_preview(found: Preview) -> dict[str, Any]:
    currency = found.currency
    return {
        "month": _month(found.month),
        "currency": currency,
        "tenants": found.tenants,
        "more": found.more,
        "less": found.less,
        "before": money(found.before, currency),
        "after": money(found.after, currency),
        "changes": [
            {
                "tenant_id": encode(TENANT, change.tenant_id),
                "before": money(change.before, currency),
                "after": money(change.after, currency),
            }
            for change in found.changes
        ],
    }


def show_contract(row: Contract) -> dict[str, Any]:
    return {
        "contract_id": row.public_id,
        "tenant_id": encode(TENANT, row.tenant_id),
        **described_contract(row),
        "created_at": instant(row.created_at),
        "created_by": row.created_by,
    }


def show_account(account: Account) -> dict[str, Any]:
    return {
        "tenant_id": encode(TENANT, account.tenant_id),
        "currency": account.currency,
        "legal_name": account.legal_name or account.name,
        "address": account.address,
        "tax_id": account.tax_id,
        "emails": list(account.emails),
        "taxes": shown_taxes(account.taxes),
        "version": account.version,
    }


def show_statement(statement: Statement) -> dict[str, Any]:
    return {
        "currency": statement.currency,
        "net": f"{statement.net:f}",
        "taxes": f"{statement.taxes:f}",
        "total": f"{statement.total:f}",
        "lines": [show_line(line) for line in lines_of(statement)],
    }


def show_forecast(forecast: Forecast) -> dict[str, Any]:
    return {
        "month": _month(forecast.month),
        "today": forecast.today.isoformat(),
        "so_far": show_statement(forecast.so_far),
        "expected": show_statement(forecast.expected),
    }


def show_budget(state: BudgetState) -> dict[str, Any]:
    budget, currency = state.budget, state.currency
    return {
        "amount": money(budget.amount, currency),
        "currency": currency,
        "capped": budget.capped,
        "grace_hours": budget.grace_hours,
        "month": _month(state.month),
        "spent": money(state.spent, currency),
        "percent": state.percent,
        "alerts": [
            {"threshold": a.threshold, "spent": money(a.spent, a.currency), "at": instant(a.at)}
            for a in state.alerts
        ],
        "low_delayed_since": instant(state.low_delayed_since),
        "version": budget.version,
    }


def show_schedule_forecast(found: ScheduleForecast, days: int) -> dict[str, Any]:
    return {
        "since": found.since.isoformat(),
        "days": days,
        "occurrences": found.planned.occurrences,
        "attempts": found.planned.attempts,
        "currency": found.added.currency,
        "total": f"{found.total:f}",
        "exact": shown(found.added.exact),
        "parts": [
            {"metric": p.metric or "minimum", "quantity": p.quantity, "exact": shown(p.exact)}
            for p in found.added.parts
        ],
    }
