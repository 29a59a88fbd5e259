"""Operators' pages: alarms, sums and prices. The ledger itself has a composite key, which the
admin cannot show; its sums and alarms can be seen here."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin, TabularInline

from billing.by_hand import settle_conflict, settle_drift
from billing.hooks import Service
from billing.models import (
    BillingPeriod,
    DriftFinding,
    MeterConflict,
    MeterCorrection,
    MeterWatermark,
    PriceBook,
    UnitPrice,
    UsageDay,
)

_REASON = "in the operators' records"


def _operator(request: HttpRequest) -> Service:
    address = request.META.get("REMOTE_ADDR", "")
    return Service(name=f"user:{request.user.pk}", source=f"admin {address}".strip())


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
    def settle(self, request: HttpRequest, chosen: QuerySet[MeterConflict]) -> None:
        for conflict in chosen.filter(settled_at=None).order_by("id"):
            settle_conflict(conflict_id=conflict.pk, accept=False, actor=_operator(request), reason=_REASON)

    @admin.action(description="Correct the ledger: what was refused is right")
    def accept(self, request: HttpRequest, chosen: QuerySet[MeterConflict]) -> None:
        for conflict in chosen.filter(settled_at=None).order_by("id"):
            settle_conflict(conflict_id=conflict.pk, accept=True, actor=_operator(request), reason=_REASON)
            self.message_user(request, f"{conflict}: corrected to {conflict.refused}.")


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
    def settle(self, request: HttpRequest, chosen: QuerySet[DriftFinding]) -> None:
        for finding in chosen.filter(settled_at=None).order_by("id"):
            settle_drift(finding_id=finding.pk, actor=_operator(request), reason=_REASON)


@admin.register(BillingPeriod)
class BillingPeriodAdmin(_ReadOnly):
    list_display = ("month", "tenant_id", "state", "waits_for", "closed_at")
    list_filter = ("state", "month")
    ordering = ("-month", "tenant_id")


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
