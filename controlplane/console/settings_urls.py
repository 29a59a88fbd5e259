"""Addresses of settings, accounts and help, beside those of the workload in `urls.py`."""

from django.urls import path

from controlplane.console import (
    api_keys,
    audit,
    erasing,
    guests,
    invited,
    limits,
    members,
    notifications,
    preferences,
    reference,
    starting,
    tenant_exports,
    workspace_settings,
)

_T = "t/<slug:slug>/"
_S = _T + "settings/"

settings_patterns = [
    path("erasures/keys", erasing.keys, name="erasure-keys"),
    path("erasures/<str:erasure_id>/<str:secret>", erasing.certificate, name="erasure-certificate"),
    path("account/", preferences.preferences, name="preferences"),
    path("invitations/<str:token>", invited.invitation, name="invitation"),
    path("support/<slug:slug>/end", guests.leave, name="support-end"),
    path(_T + "start", starting.getting_started, name="start"),
    path(_T + "reference", reference.reference, name="reference"),
    path(_S, workspace_settings.workspace_settings, name="settings"),
    path(_S + "support", workspace_settings.support_grant, name="support-grant"),
    path(_S + "work", workspace_settings.work, name="work"),
    path(_S + "leave", members.leave, name="leave"),
    path(_S + "limits", limits.limits, name="limits"),
    path(_S + "members/", members.member_list, name="members"),
    path(_S + "members/<str:member_id>/", members.member_edit, name="member"),
    path(_S + "members/<str:member_id>/remove", members.member_remove, name="member-remove"),
    path(
        _S + "invitations/<str:invitation_id>/<slug:verb>",
        members.invitation_action,
        name="invitation-action",
    ),
    path(_S + "keys/", api_keys.key_list, name="keys"),
    path(_S + "keys/new", api_keys.key_new, name="key-new"),
    path(_S + "keys/<str:key_id>/<slug:verb>", api_keys.key_action, name="key-action"),
    path(_S + "audit", audit.audit_log, name="audit"),
    path(_S + "export", tenant_exports.exports, name="tenant-exports"),
    path(_S + "export/<str:export_id>/<str:name>", tenant_exports.file, name="tenant-export-file"),
    path(_S + "erasure", erasing.erasure, name="erasure"),
    path(_S + "erasure/cancel", erasing.cancel, name="erasure-cancel"),
    path(_S + "notifications/", notifications.rule_list, name="notifications"),
    path(_S + "notifications/new", notifications.rule_new, name="notification-new"),
    path(_S + "notifications/<str:rule_id>/", notifications.rule_page, name="notification"),
    path(_S + "notifications/<str:rule_id>/edit", notifications.rule_edit, name="notification-edit"),
    path(
        _S + "notifications/<str:rule_id>/<slug:verb>",
        notifications.rule_action,
        name="notification-action",
    ),
    path(_S + "deliveries/<str:delivery_id>/", notifications.delivery_page, name="notification-delivery"),
]
