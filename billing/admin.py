"""Operators' pages: alarms, sums and prices. The ledger itself has a composite key, which the
admin cannot show; its sums and alarms can be seen here."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from unfold.admin import ModelAdmin, TabularInline

from billing.corrections import accept_refused
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
        chosen.filter(settled_at=None).update(settled_at=Now(), settled_by=f"user:{request.user.pk}")

    @admin.action(description="Correct the ledger: what was refused is right")
    def accept(self, request: HttpRequest, chosen: QuerySet[MeterConflict]) -> None:
        actor = f"user:{request.user.pk}"
        for conflict in chosen.filter(settled_at=None).order_by("id"):
            made = accept_refused(conflict, actor=actor, reason=f"conflict {conflict.pk} settled")
            MeterConflict.objects.filter(pk=conflict.pk).update(settled_at=Now(), settled_by=actor)
            self.message_user(request, f"{conflict}: {conflict.recorded} corrected by {made.quantity:+}.")


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
        chosen.filter(settled_at=None).update(settled_at=Now(), settled_by=f"user:{request.user.pk}")


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
