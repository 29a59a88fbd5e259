"""Operators' lists: messages of all rules."""

from __future__ import annotations

from django.contrib import admin

from controlplane.adminsite import ReadOnlyAdmin
from controlplane.notifications.models import Delivery


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    list_display = (
        "id",
        "rule",
        "kind",
        "state",
        "events",
        "attempts",
        "due_at",
        "last_status",
        "last_error",
    )
    list_filter = ("state",)
    list_select_related = ("rule",)
    ordering = ("-id",)
