"""Operators' pages: audit, feed, outbox."""

from __future__ import annotations

from django.contrib import admin

from controlplane.adminsite import ReadOnlyAdmin
from controlplane.events.models import AuditEvent, Change, FeedHorizon, OutboxItem


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin):
    list_display = ("at", "action", "subject", "actor", "source", "reason")
    search_fields = ("=subject", "=actor", "=action")
    ordering = ("-id",)


@admin.register(Change)
class ChangeAdmin(ReadOnlyAdmin):
    list_display = ("id", "kind", "key", "at")
    list_filter = ("kind",)
    ordering = ("-id",)


@admin.register(FeedHorizon)
class FeedHorizonAdmin(ReadOnlyAdmin):
    list_display = ("identity", "oldest_xid")


@admin.register(OutboxItem)
class OutboxItemAdmin(ReadOnlyAdmin):
    list_display = ("topic", "subject", "generation", "attempts", "due_at", "leased_until", "last_error")
    list_filter = ("topic",)
