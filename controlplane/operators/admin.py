"""Admin pages of visits and of what allauth keeps: shown, never edited by form, no secret on them."""

from __future__ import annotations

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib import admin
from django.contrib.auth.models import Group

from controlplane.adminsite import ReadOnlyAdmin
from controlplane.operators.models import OperatorRead, PayloadGrant, SupportVisit

for _model in (EmailAddress, Authenticator, UserSession, Group):
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)


@admin.register(SupportVisit)
class SupportVisitAdmin(ReadOnlyAdmin):
    list_display = ("operator", "tenant", "reason", "started_at", "expires_at", "ended_at")
    list_filter = (("ended_at", admin.EmptyFieldListFilter),)
    search_fields = ("operator__email", "tenant__slug", "reason")
    list_select_related = ("operator", "tenant")
    ordering = ("-id",)


@admin.register(PayloadGrant)
class PayloadGrantAdmin(ReadOnlyAdmin):
    list_display = ("tenant", "until", "granted_by")
    list_select_related = ("tenant",)


@admin.register(OperatorRead)
class OperatorReadAdmin(ReadOnlyAdmin):
    list_display = ("operator", "tenant_id", "hour")
    ordering = ("-id",)


@admin.register(EmailAddress)
class EmailAddressAdmin(ReadOnlyAdmin):
    list_display = ("email", "user", "verified", "primary")
    list_filter = ("verified", "primary")
    search_fields = ("email",)
    list_select_related = ("user",)


@admin.register(Authenticator)
class AuthenticatorAdmin(ReadOnlyAdmin):
    list_display = ("user", "type", "created_at", "last_used_at")
    list_filter = ("type",)
    search_fields = ("user__email",)
    list_select_related = ("user",)
    exclude = ("data",)


@admin.register(UserSession)
class UserSessionAdmin(ReadOnlyAdmin):
    list_display = ("user", "ip", "user_agent", "created_at")
    search_fields = ("user__email", "=ip")
    list_select_related = ("user",)
    exclude = ("session_key", "data")
