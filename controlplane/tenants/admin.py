"""Operators' pages: people, tenants, keys."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import TabularInline

from controlplane.adminsite import ReadOnlyAdmin, for_each, operator
from controlplane.tenants.actions.accounts import remove_factors, set_active
from controlplane.tenants.actions.api_keys import revoke_api_key
from controlplane.tenants.actions.tenants import resume_tenant, suspend_tenant
from controlplane.tenants.models import (
    ApiKey,
    Domain,
    Invitation,
    Membership,
    Quota,
    Tenant,
    User,
    WorkspaceSchema,
)

_REASON = "on the operators' pages"


class _ReadOnlyInline(TabularInline):  # type: ignore[misc]
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_staff)


class QuotaInline(_ReadOnlyInline):
    model = Quota


class MembershipInline(_ReadOnlyInline):
    model = Membership
    fk_name = "tenant"


@admin.register(Tenant)
class TenantAdmin(ReadOnlyAdmin):
    list_display = ("slug", "public_id", "name", "state", "home_region", "cell", "version", "created_at")
    list_filter = ("state", "home_region", "placement__cell")
    search_fields = ("slug", "name")
    list_select_related = ("placement",)
    inlines = (QuotaInline, MembershipInline)
    actions = ("suspend", "resume")

    @admin.display(ordering="placement__cell")
    def cell(self, tenant: Tenant) -> str:
        placement = getattr(tenant, "placement", None)
        return placement.cell_id if placement else "—"

    @admin.action(description="Suspend: nothing starts any more")
    def suspend(self, request: HttpRequest, chosen: QuerySet[Tenant]) -> None:
        actor = operator(request)
        for_each(
            request,
            chosen,
            lambda t: suspend_tenant(tenant_id=t.id, actor=actor, reason=_REASON),
            "Suspended",
        )

    @admin.action(description="Resume")
    def resume(self, request: HttpRequest, chosen: QuerySet[Tenant]) -> None:
        actor = operator(request)
        for_each(
            request, chosen, lambda t: resume_tenant(tenant_id=t.id, actor=actor, reason=_REASON), "Resumed"
        )


@admin.register(User)
class UserAdmin(ReadOnlyAdmin):
    list_display = ("email", "name", "is_active", "is_staff", "last_login", "joined_at")
    list_filter = ("is_staff", "is_active")
    search_fields = ("email", "name")
    exclude = ("password",)
    actions = ("close", "open_again", "remove_second_factor")

    @admin.action(description="Close: nobody signs in with it")
    def close(self, request: HttpRequest, chosen: QuerySet[User]) -> None:
        actor = operator(request)
        for_each(
            request, chosen, lambda u: set_active(user=u, active=False, actor=actor, reason=_REASON), "Closed"
        )

    @admin.action(description="Open again")
    def open_again(self, request: HttpRequest, chosen: QuerySet[User]) -> None:
        actor = operator(request)
        for_each(
            request, chosen, lambda u: set_active(user=u, active=True, actor=actor, reason=_REASON), "Opened"
        )

    @admin.action(description="Take the second factor off: its owner lost it")
    def remove_second_factor(self, request: HttpRequest, chosen: QuerySet[User]) -> None:
        actor = operator(request)
        for_each(request, chosen, lambda u: remove_factors(user=u, actor=actor, reason=_REASON), "Taken off")


@admin.register(Membership)
class MembershipAdmin(ReadOnlyAdmin):
    list_display = ("user", "tenant", "role", "may_see_payloads", "created_at")
    list_filter = ("role",)
    search_fields = ("user__email", "tenant__slug")
    list_select_related = ("user", "tenant")


@admin.register(Invitation)
class InvitationAdmin(ReadOnlyAdmin):
    list_display = ("email", "tenant", "role", "sent_at", "expires_at", "accepted_at", "revoked_at")
    search_fields = ("email", "tenant__slug")
    list_select_related = ("tenant",)
    exclude = ("nonce",)  # links in mails are signed over it


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    list_display = ("id", "name", "tenant", "scopes", "expires_at", "revoked_at", "last_used_at")
    search_fields = ("id", "name", "tenant__slug")
    list_select_related = ("tenant",)
    exclude = ("sha256",)
    actions = ("revoke",)

    @admin.action(description="Revoke at once")
    def revoke(self, request: HttpRequest, chosen: QuerySet[ApiKey]) -> None:
        actor = operator(request)
        for_each(
            request,
            chosen,
            lambda k: revoke_api_key(tenant_id=k.tenant_id, key_id=k.id, actor=actor, reason=_REASON),
            "Revoked",
        )


@admin.register(Quota)
class QuotaAdmin(ReadOnlyAdmin):
    list_display = ("tenant", *Quota.NAMES)
    search_fields = ("tenant__slug",)
    list_select_related = ("tenant",)


@admin.register(WorkspaceSchema)
class WorkspaceSchemaAdmin(ReadOnlyAdmin):
    list_display = ("schema", "version", "state", "tenant_id", "claimed_at", "last_error")
    list_filter = ("state", "version")


@admin.register(Domain)
class DomainAdmin(ReadOnlyAdmin):
    list_display = ("domain", "tenant", "is_primary")
