"""Operators' pages of what is charged. They show everything and act through use-cases only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from unfold.admin import TabularInline

from billing.admin import _REASON, _operator, _ReadOnly
from billing.budgets.models import Budget, BudgetAlert, LowDelay
from billing.invoices import settling
from billing.invoices.models import CreditNote, Invoice, InvoiceLine, NumberSeries, SentMail
from billing.pricing.books import withdraw_book
from billing.pricing.models import BillingAccount, ChargeBook, Contract
from billing.refusals import Refused
from billing.stripe.models import (
    StripeCursor,
    StripeCustomer,
    StripeDifference,
    StripeEvent,
    StripeInvoice,
    StripeMeter,
)


def _for_each(request: HttpRequest, chosen: QuerySet[Any], act: Callable[[Any], Any], done: str) -> None:
    """Acts on each chosen row; says how many were done, and why others were not."""
    count = 0
    for row in chosen:
        try:
            act(row)
            count += 1
        except Refused as refused:
            messages.error(request, f"{row}: {refused}")
    if count:
        messages.success(request, f"{done}: {count}")


class InvoiceLineInline(TabularInline):  # type: ignore[misc]
    model = InvoiceLine
    extra = 0
    can_delete = False
    fields = (
        "n",
        "kind",
        "metric",
        "region_policy",
        "start",
        "end",
        "tier",
        "quantity",
        "unit_amount",
        "per",
        "amount",
    )

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_staff)


@admin.register(Invoice)
class InvoiceAdmin(_ReadOnly):
    list_display = ("number", "tenant_id", "period_start", "state", "total", "currency", "credited", "due_on")
    list_filter = ("state", "currency", "period_start")
    search_fields = ("number", "tenant_id")
    ordering = ("-id",)
    inlines = (InvoiceLineInline,)
    actions = ("finalize", "pay", "void", "give_up")

    def _act(
        self, request: HttpRequest, chosen: QuerySet[Invoice], move: Callable[..., Any], done: str
    ) -> None:
        def act(invoice: Invoice) -> None:
            move(invoice_id=invoice.id, now=datetime.now(UTC), actor=_operator(request), reason=_REASON)

        _for_each(request, chosen, act, done)

    @admin.action(description="Finalise: number and send them; they never change again")
    def finalize(self, request: HttpRequest, chosen: QuerySet[Invoice]) -> None:
        self._act(request, chosen.order_by("period_start", "id"), settling.finalize, "Finalised")

    @admin.action(description="Paid in full")
    def pay(self, request: HttpRequest, chosen: QuerySet[Invoice]) -> None:
        self._act(request, chosen, settling.pay, "Paid")

    @admin.action(description="Void: wrong as a whole, not to be paid")
    def void(self, request: HttpRequest, chosen: QuerySet[Invoice]) -> None:
        self._act(request, chosen, settling.void, "Void")

    @admin.action(description="Give up: nobody expects the money any more")
    def give_up(self, request: HttpRequest, chosen: QuerySet[Invoice]) -> None:
        self._act(request, chosen, settling.give_up, "Given up")


@admin.register(ChargeBook)
class ChargeBookAdmin(_ReadOnly):
    list_display = ("name", "currency", "effective_from", "minimum", "note")
    list_filter = ("currency",)
    ordering = ("-effective_from",)
    actions = ("withdraw",)

    @admin.action(description="Withdraw: only books that are not in force yet")
    def withdraw(self, request: HttpRequest, chosen: QuerySet[ChargeBook]) -> None:
        today = datetime.now(UTC).date()
        _for_each(
            request,
            chosen,
            lambda row: withdraw_book(book_id=row.id, today=today, actor=_operator(request), reason=_REASON),
            "Withdrawn",
        )


@admin.register(Contract)
class ContractAdmin(_ReadOnly):
    list_display = ("__str__", "tenant_id", "effective_from", "effective_until", "minimum", "note")
    search_fields = ("tenant_id",)
    ordering = ("-id",)


@admin.register(CreditNote)
class CreditNoteAdmin(_ReadOnly):
    list_display = ("number", "invoice", "tenant_id", "total", "currency", "reason", "created_at")
    ordering = ("-sequence",)


@admin.register(BudgetAlert)
class BudgetAlertAdmin(_ReadOnly):
    list_display = ("tenant_id", "month", "threshold", "spent", "budget", "currency", "at")
    ordering = ("-id",)


@admin.register(StripeDifference)
class StripeDifferenceAdmin(_ReadOnly):
    list_display = ("kind", "subject", "ours", "theirs", "found_at", "settled_at")
    list_filter = ("kind", ("settled_at", admin.EmptyFieldListFilter))
    ordering = ("-id",)


_LISTED: dict[type[Model], tuple[str, ...]] = {
    BillingAccount: ("tenant_id", "currency", "legal_name", "tax_id"),
    Budget: ("tenant_id", "amount", "capped", "grace_hours"),
    InvoiceLine: ("invoice", "n", "kind", "metric", "quantity", "amount"),
    LowDelay: ("tenant_id", "month", "since"),
    NumberSeries: ("issuer", "kind", "last"),
    SentMail: ("key", "tenant_id", "sent_at"),
    StripeCursor: ("tenant_id", "month", "metric", "region_policy", "sent", "pending", "error"),
    StripeCustomer: ("tenant_id", "customer"),
    StripeEvent: ("event_id", "kind", "received_at", "outcome"),
    StripeInvoice: ("invoice", "stripe_id", "state", "error", "updated_at"),
    StripeMeter: ("event_name", "meter"),
}
for _model, _columns in _LISTED.items():
    admin.site.register(
        _model, type(f"{_model.__name__}Admin", (_ReadOnly,), {"list_display": _columns, "ordering": ("pk",)})
    )
