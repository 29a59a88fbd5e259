"""Operators' pages: idempotency keys (their answers stay sealed)."""

from __future__ import annotations

from django.contrib import admin

from controlplane.adminsite import ReadOnlyAdmin
from controlplane.api.models import IdempotencyKey


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(ReadOnlyAdmin):
    list_display = ("scope", "route", "key", "status", "created_at")
    exclude = ("fingerprint", "sealed")
