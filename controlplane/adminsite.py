"""What the operators' pages share: they show everything and write through use-cases only."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
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

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """What a page shows; of a tenant, it is in that tenant's audit log that somebody looked."""
        found = super().get_object(request, object_id, from_field)
        if found is not None:
            _record_read(request, {tenant_of(found)})
        return found

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list; narrowed to one tenant, it is a read of it."""
        response: HttpResponse = super().changelist_view(request, extra_context)
        listed = (getattr(response, "context_data", None) or {}).get("cl")
        if request.method == "GET" and request.GET and listed is not None:
            _record_read(request, {tenant_of(row) for row in listed.result_list})
        return response


def tenant_of(row: Any) -> uuid.UUID | None:
    """Whose row it is; None where it is no single tenant's."""
    if row._meta.label == "tenants.Tenant":
        return cast(uuid.UUID, row.pk)
    found = getattr(row, "tenant_id", None)
    return found if isinstance(found, uuid.UUID) else None


def _record_read(request: HttpRequest, tenants: set[uuid.UUID | None]) -> None:
    from controlplane.operators.reads import record_read  # its model is not ready when admins are made

    if len(tenants) == 1 and (tenant_id := tenants.pop()) is not None:
        record_read(tenant_id=tenant_id, actor=operator(request), what=request.path)


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
