"""Operators' pages: alarms, sums and prices. The ledger itself has a composite key, which the
admin cannot show; its sums and alarms can be seen here."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from unfold.admin import ModelAdmin, TabularInline

from billing.by_hand import settle_conflict, settle_drift
from billing.hooks import Service, note_read
from billing.models import (
    BillingPeriod,
    DriftFinding,
    MeterConflict,
    MeterCorrection,
    MeterWatermark,
    PriceBook,
    RouterMark,
    UnitPrice,
    UsageDay,
)

#: Ticked rows that a page names before something is done to them.
_SHOWN = 20


class _ReadOnly(ModelAdmin):  # type: ignore[misc]
    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_active and request.user.is_staff)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """What a page shows; of a tenant, it is in that tenant's audit log that somebody looked."""
        found = super().get_object(request, object_id, from_field)
        if found is not None:
            _note_read(request, {_tenant_of(found)})
        return found

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list; narrowed to one tenant, it is a read of it."""
        response: HttpResponse = super().changelist_view(request, extra_context)
        listed = (getattr(response, "context_data", None) or {}).get("cl")
        if request.method == "GET" and request.GET and listed is not None:
            _note_read(request, {_tenant_of(row) for row in listed.result_list})
        return response

    def reason_for(
        self, request: HttpRequest, chosen: QuerySet[Any], action: str, counted: str, then: str
    ) -> str | HttpResponse:
        """Why the operator does `action` to the ticked rows; where they have not said yet, the page
        that asks, with how many there are (`counted`) and what will come of it (`then`)."""
        reason = request.POST.get("reason", "").strip()
        if reason:
            return reason[:1000]
        context = {
            **self.admin_site.each_context(request),
            "title": str(self.get_action(action)[2]),
            "opts": self.opts,
            "action": action,
            "counted": counted,
            "then": then,
            "rows": list(chosen[:_SHOWN]),
            "more": max(0, chosen.count() - _SHOWN),
            "ticked": request.POST.getlist("_selected_action"),
            "select_across": request.POST.get("select_across", "0"),
            "asked_before": "reason" in request.POST,
        }
        return TemplateResponse(request, "admin/billing/reason.html", context)


def operator_of(request: HttpRequest) -> Service:
    """The signed-in operator, for use-cases."""
    address = request.META.get("REMOTE_ADDR", "")
    return Service(name=f"user:{request.user.pk}", source=f"admin {address}".strip())


def _tenant_of(row: Any) -> uuid.UUID | None:
    found = getattr(row if hasattr(row, "tenant_id") else getattr(row, "invoice", None), "tenant_id", None)
    return found if isinstance(found, uuid.UUID) else None


def _note_read(request: HttpRequest, tenants: set[uuid.UUID | None]) -> None:
    if len(tenants) == 1 and (tenant_id := tenants.pop()) is not None:
        note_read(tenant_id=tenant_id, actor=operator_of(request), what=request.path)


@admin.register(MeterConflict)
class MeterConflictAdmin(_ReadOnly):
    list_display = (
        "first_at",
        "tenant_id",
        "cell",
        "host",
        "minute",
        "metric",
        "recorded",
        "refused",
        "settled_at",
    )
    list_filter = ("cell", "metric", ("settled_at", admin.EmptyFieldListFilter))
    actions = ("settle", "accept")

    @admin.action(description="Settled: looked into, what stands is right")
    def settle(self, request: HttpRequest, chosen: QuerySet[MeterConflict]) -> HttpResponse | None:
        open_ones = chosen.filter(settled_at=None).order_by("id")
        counted = f"{open_ones.count()} open conflicts"
        reason = self.reason_for(request, open_ones, "settle", counted, "What is recorded stands.")
        if isinstance(reason, HttpResponse):
            return reason
        for conflict in open_ones:
            settle_conflict(conflict_id=conflict.pk, accept=False, actor=operator_of(request), reason=reason)
        return None

    @admin.action(description="Correct the ledger: what was refused is right")
    def accept(self, request: HttpRequest, chosen: QuerySet[MeterConflict]) -> HttpResponse | None:
        open_ones = chosen.filter(settled_at=None).order_by("id")
        by = sum(row.refused - row.recorded for row in open_ones)
        counted = f"{open_ones.count()} open conflicts, {by:+} units in all"
        then = "Usage becomes what was refused; of closed months the next invoice takes it up."
        reason = self.reason_for(request, open_ones, "accept", counted, then)
        if isinstance(reason, HttpResponse):
            return reason
        for conflict in open_ones:
            settle_conflict(conflict_id=conflict.pk, accept=True, actor=operator_of(request), reason=reason)
            self.message_user(request, f"{conflict}: corrected to {conflict.refused}.")
        return None


@admin.register(DriftFinding)
class DriftFindingAdmin(_ReadOnly):
    """Differences settle themselves once the figures are equal again; a person may settle one, too."""

    list_display = (
        "day",
        "tenant_id",
        "cell",
        "metric",
        "region_policy",
        "counted",
        "ledger",
        "rollup",
        "first_at",
        "last_at",
        "settled_at",
    )
    list_filter = ("cell", ("settled_at", admin.EmptyFieldListFilter))
    ordering = ("settled_at", "-day")
    actions = ("settle",)

    @admin.action(description="Settled: looked into, nothing more to do")
    def settle(self, request: HttpRequest, chosen: QuerySet[DriftFinding]) -> HttpResponse | None:
        open_ones = chosen.filter(settled_at=None).order_by("id")
        counted = f"{open_ones.count()} open differences"
        then = "They are no alarm any more, unless the figures change."
        reason = self.reason_for(request, open_ones, "settle", counted, then)
        if isinstance(reason, HttpResponse):
            return reason
        for finding in open_ones:
            settle_drift(finding_id=finding.pk, actor=operator_of(request), reason=reason)
        return None


@admin.register(BillingPeriod)
class BillingPeriodAdmin(_ReadOnly):
    list_display = ("month", "tenant_id", "state", "waits_for", "closed_at")
    list_filter = ("state", "month")
    ordering = ("-month", "tenant_id")


@admin.register(RouterMark)
class RouterMarkAdmin(_ReadOnly):
    """How far each router has told what it counted; closing a month waits for them."""

    list_display = ("host", "sealed_until", "heard_at")
    search_fields = ("host",)
    ordering = ("sealed_until",)


@admin.register(MeterWatermark)
class MeterWatermarkAdmin(_ReadOnly):
    list_display = ("cell", "store", "epoch", "sealed_until", "received_at")
    list_filter = ("cell",)
    ordering = ("cell", "store", "-epoch")


@admin.register(MeterCorrection)
class MeterCorrectionAdmin(_ReadOnly):
    list_display = ("at", "tenant_id", "cell", "minute", "metric", "quantity", "actor", "reason")
    list_filter = ("cell", "metric")
    ordering = ("-at",)


@admin.register(UsageDay)
class UsageDayAdmin(_ReadOnly):
    list_display = ("day", "tenant_id", "metric", "region_policy", "cell", "quantity", "records")
    list_filter = ("metric", "region_policy", "cell")
    ordering = ("-day", "tenant_id", "metric")


class UnitPriceInline(TabularInline):  # type: ignore[misc]
    model = UnitPrice
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_staff)


@admin.register(PriceBook)
class PriceBookAdmin(_ReadOnly):
    list_display = ("name", "currency", "effective_from", "note")
    inlines = (UnitPriceInline,)


@admin.register(UnitPrice)
class UnitPriceAdmin(_ReadOnly):
    list_display = ("book", "metric", "region_policy", "amount", "per")
    list_filter = ("book", "metric")


# Registers the pages of what is charged; they are read-only by the class above.
from billing import admin_money  # noqa: E402, F401
