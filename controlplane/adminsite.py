"""What the operators' pages share: they show everything and write through use-cases only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from controlplane.actors import Actor
from controlplane.errors import Refused


class ReadOnlyAdmin(ModelAdmin):  # type: ignore[misc]
    """Lists and shows. Nothing is added, changed or deleted by form; actions call use-cases."""

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


def operator(request: HttpRequest) -> Actor:
    """The signed-in operator, for use-cases."""
    address = request.META.get("REMOTE_ADDR", "")
    return Actor(name=f"user:{request.user.pk}", operator=True, owner=True, source=f"admin {address}".strip())


def for_each(request: HttpRequest, chosen: Any, act: Callable[[Any], Any], done: str) -> None:
    """Runs a use-case for each chosen row; says what was done and what was refused."""
    count = 0
    for row in chosen:
        try:
            act(row)
            count += 1
        except Refused as e:
            messages.error(request, f"{row}: {e}")
    if count:
        messages.success(request, f"{done}: {count}")
