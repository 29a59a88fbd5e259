"""Operators' pages of what is charged. They show everything and act through use-cases only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from unfold.admin import TabularInline

from billing.admin import _ReadOnly, operator_of
from billing.budgets.models import Budget, BudgetAlert, LowDelay
from billing.charging.money import quantize
from billing.exports.models import Export, ExportSchedule
from billing.invoices import settling
from billing.invoices.models import CreditNote, Invoice, InvoiceLine, NothingDue, NumberSeries, SentMail
from billing.pricing.books import withdraw_book
from billing.pricing.models import BillingAccount, ChargeBook, Contract
from billing.refusals import Refused
from billing.stripe.comparing import settle_difference
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
        self,
        request: HttpRequest,
        chosen: QuerySet[Invoice],
        action: str,
        move: Callable[..., Any],
        done: str,
    ) -> HttpResponse | None:
        """Says the numbers and asks why; then moves each, the oldest month first."""
        chosen = chosen.order_by("period_start", "id")
        reason = self.reason_for(request, chosen, action, _counted(chosen), _THEN[action])
        if isinstance(reason, HttpResponse):
            return reason

        def act(invoice: Invoice) -> None:
            move(invoice_id=invoice.id, now=datetime.now(UTC), actor=operator_of(request), reason=reason)

        _for_each(request, chosen, act, done)
        return None

    @admin.action(description="Finalise: number and send them; they never change again")
    def finalize(self, request: HttpRequest, chosen: QuerySet[Invoice]) -> HttpResponse | None:
        return self._act(request, chosen, "finalize", settling.finalize, "Finalised")

    @admin.action(description="Paid in full")
    def pay(self, request: HttpRequest, chosen: QuerySet[Invoice]) -> HttpResponse | None:
        return self._act(request, chosen, "pay", settling.pay, "Paid")

    @admin.action(description="Void: wrong as a whole, not to be paid")
    def void(self, request: HttpRequest, chosen: QuerySet[Invoice]) -> HttpResponse | None:
        return self._act(request, chosen, "void", settling.void, "Void")

    @admin.action(description="Give up: nobody expects the money any more")
    def give_up(self, request: HttpRequest, chosen: QuerySet[Invoice]) -> HttpResponse | None:
        return self._act(request, chosen, "give_up", settling.give_up, "Given up")


_THEN = {
    "finalize": "They are numbered, mailed and sent to Stripe, and never change again.",
    "pay": "Nobody is asked for the money any more.",
    "void": "They are not to be paid. They keep their numbers, and are not written again by themselves.",
    "give_up": "Nobody expects the money any more; it may come all the same.",
}


def _counted(chosen: QuerySet[Invoice]) -> str:
    """How many, and what they come to in each currency."""
    sums = chosen.order_by("currency").values_list("currency").annotate(sum=Sum("total"))
    totals = [f"{quantize(total, currency):,f} {currency}" for currency, total in sums]
    return f"{chosen.count()} invoices: {', '.join(totals)}"


@admin.register(ChargeBook)
class ChargeBookAdmin(_ReadOnly):
    list_display = ("name", "currency", "effective_from", "minimum", "note")
    list_filter = ("currency",)
    ordering = ("-effective_from",)
    actions = ("withdraw",)

    @admin.action(description="Withdraw: only books that are not in force yet")
    def withdraw(self, request: HttpRequest, chosen: QuerySet[ChargeBook]) -> HttpResponse | None:
        today = datetime.now(UTC).date()
        then = "Their prices will not come into force."
        reason = self.reason_for(request, chosen, "withdraw", f"{chosen.count()} price books", then)
        if isinstance(reason, HttpResponse):
            return reason
        _for_each(
            request,
            chosen,
            lambda row: withdraw_book(book_id=row.id, today=today, actor=operator_of(request), reason=reason),
            "Withdrawn",
        )
        return None


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
    actions = ("settle",)

    @admin.action(description="Settled: looked into, nothing more to do")
    def settle(self, request: HttpRequest, chosen: QuerySet[StripeDifference]) -> HttpResponse | None:
        open_ones = chosen.filter(settled_at=None).order_by("id")
        counted = f"{open_ones.count()} open differences"
        reason = self.reason_for(request, open_ones, "settle", counted, "They are no alarm any more.")
        if isinstance(reason, HttpResponse):
            return reason
        for row in open_ones:
            settle_difference(difference_id=row.pk, actor=operator_of(request), reason=reason)
        return None


_LISTED: dict[type[Model], tuple[str, ...]] = {
    BillingAccount: ("tenant_id", "currency", "legal_name", "tax_id"),
    Budget: ("tenant_id", "amount", "capped", "grace_hours"),
    InvoiceLine: ("invoice", "n", "kind", "metric", "quantity", "amount"),
    LowDelay: ("tenant_id", "month", "since"),
    NothingDue: ("tenant_id", "month", "at"),
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


@admin.register(Export)
class ExportAdmin(_ReadOnly):
    list_display = (
        "created_at",
        "tenant_id",
        "dataset",
        "format",
        "since",
        "until",
        "state",
        "rows_done",
        "error",
    )
    list_filter = ("state", "dataset", "format")
    ordering = ("-created_at",)


@admin.register(ExportSchedule)
class ExportScheduleAdmin(_ReadOnly):
    list_display = ("tenant_id", "dataset", "format", "cadence", "created_at")
    list_filter = ("dataset", "cadence")
    ordering = ("tenant_id", "dataset")
