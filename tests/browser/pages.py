"""Every page people can open, with what must be known to open it.

A new address of the console, of accounts or of operators needs a line here: `PAGES` if it shows
something, `PARTS` if it has no page of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from django.urls import URLPattern, URLResolver, get_resolver

Role = Literal["nobody", "owner", "operator"]
_T = "/t/demo/"
_OPERATORS = "/admin/pages/"

#: By the name in the URL configuration; `{…}` are things of the demo tenant.
PAGES: dict[str, tuple[Role, str]] = {
    # accounts
    "account_login": ("nobody", "/accounts/login/"),
    "account_signup": ("nobody", "/accounts/signup/"),
    "account_reset_password": ("nobody", "/accounts/password/reset/"),
    "account_reset_password_done": ("nobody", "/accounts/password/reset/done/"),
    "account_reset_password_from_key": ("nobody", "/accounts/password/reset/key/1-none/"),
    "account_reset_password_from_key_done": ("nobody", "/accounts/password/reset/key/done/"),
    "account_inactive": ("nobody", "/accounts/inactive/"),
    "account_email_verification_sent": ("nobody", "/accounts/confirm-email/"),
    "account_confirm_email": ("nobody", "/accounts/confirm-email/none/"),
    "account_reauthenticate": ("owner", "/accounts/reauthenticate/"),
    "account_change_password": ("owner", "/accounts/password/change/"),
    "account_email": ("owner", "/accounts/email/"),
    "usersessions_list": ("owner", "/accounts/sessions/"),
    "mfa_index": ("owner", "/accounts/2fa/"),
    "mfa_activate_totp": ("owner", "/accounts/2fa/totp/activate/"),
    "account_logout": ("owner", "/accounts/logout/"),
    "console:preferences": ("owner", "/account/"),
    "console:invitation": ("nobody", "/invitations/none"),
    # the tenant's workload
    "console:choose": ("owner", "/?choose"),
    "console:overview": ("owner", _T),
    "console:returned": ("owner", _T + "returned"),
    "console:events": ("owner", _T + "events"),
    "console:delays": ("owner", _T + "delays"),
    "console:herd": ("owner", _T + "herd"),
    "console:activity": ("owner", _T + "activity"),
    "console:jobs": ("owner", _T + "jobs/"),
    "console:job-new": ("owner", _T + "jobs/new"),
    "console:job": ("owner", _T + "jobs/{job_id}/"),
    "console:job-edit": ("owner", _T + "jobs/{job_id}/edit"),
    "console:job-why": ("owner", _T + "jobs/{job_id}/why"),
    "console:job-action": ("owner", _T + "jobs/{job_id}/pause"),
    "console:job-backfill": ("owner", _T + "jobs/{job_id}/backfill"),
    "console:backfills": ("owner", _T + "backfills/"),
    "console:backfill": ("owner", _T + "backfills/{backfill_id}/"),
    "console:calendars": ("owner", _T + "calendars/"),
    "console:calendar-new": ("owner", _T + "calendars/new"),
    "console:calendar": ("owner", _T + "calendars/{calendar_id}/"),
    "console:calendar-delete": ("owner", _T + "calendars/{calendar_id}/delete"),
    "console:operations": ("owner", _T + "operations/"),
    "console:runs": ("owner", _T + "runs/"),
    "console:run": ("owner", _T + "runs/{run_id}/"),
    "console:run-again": ("owner", _T + "runs/{run_id}/again"),
    "console:dlq": ("owner", _T + "dlq/"),
    "console:redrives": ("owner", _T + "redrives/"),
    "console:redrive": ("owner", _T + "redrives/{redrive_id}/"),
    "console:workflows": ("owner", _T + "workflows/"),
    "console:workflow-reconciliation": ("owner", _T + "workflow-reconciliation"),
    "console:workflow-new": ("owner", _T + "workflow-new?definition={definition}"),
    "console:workflow": ("owner", _T + "workflows/{workflow_id}/"),
    "console:workflow-history": ("owner", _T + "workflows/{workflow_id}/history"),
    "console:workflow-act": ("owner", _T + "workflows/{workflow_id}/signal"),
    "console:definition-language": ("owner", _T + "definition-language"),
    "console:definitions": ("owner", _T + "definitions/"),
    "console:definition": ("owner", _T + "definitions/{definition}/"),
    "console:definition-new": ("owner", _T + "definition-new?from={definition}"),
    "console:targets": ("owner", _T + "targets/"),
    "console:target-new": ("owner", _T + "targets/new"),
    "console:target": ("owner", _T + "targets/{target_id}/"),
    "console:target-edit": ("owner", _T + "targets/{target_id}/edit"),
    "console:target-action": ("owner", _T + "targets/{target_id}/rotate"),
    "console:queues": ("owner", _T + "queues/"),
    "console:queue": ("owner", _T + "queues/{queue}/"),
    "console:queue-action": ("owner", _T + "queues/{queue}/pause"),
    "console:usage": ("owner", _T + "usage"),
    "console:usage-records": ("owner", _T + "usage/records?day=2026-01-05&metric=job_runs&policy=HOME_ASYNC"),
    "console:budget": ("owner", _T + "budget"),
    "console:budget-remove": ("owner", _T + "budget/remove"),
    "console:invoices": ("owner", _T + "invoices/"),
    "console:invoice": ("owner", _T + "invoices/{invoice_id}/"),
    "console:invoice-line": ("owner", _T + "invoices/{invoice_id}/lines/{n}"),
    "console:exports": ("owner", _T + "exports/"),
    "console:export": ("owner", _T + "exports/{export_id}/"),
    "console:export-schedule-remove": ("owner", _T + "export-schedules/{dataset}/remove"),
    # its settings and help
    "console:start": ("owner", _T + "start"),
    "console:reference": ("owner", _T + "reference"),
    "console:settings": ("owner", _T + "settings/"),
    "console:limits": ("owner", _T + "settings/limits"),
    "console:members": ("owner", _T + "settings/members/"),
    "console:member": ("owner", _T + "settings/members/{member_id}/"),
    "console:member-remove": ("owner", _T + "settings/members/{member_id}/remove"),
    "console:keys": ("owner", _T + "settings/keys/"),
    "console:key-new": ("owner", _T + "settings/keys/new"),
    "console:key-action": ("owner", _T + "settings/keys/{key_id}/revoke"),
    "console:audit": ("owner", _T + "settings/audit"),
    "console:tenant-exports": ("owner", _T + "settings/export"),
    "console:erasure": ("owner", _T + "settings/erasure"),
    "console:erasure-certificate": ("owner", "/erasures/ers_none/none"),
    "console:notifications": ("owner", _T + "settings/notifications/"),
    "console:notification-new": ("owner", _T + "settings/notifications/new"),
    "console:notification": ("owner", _T + "settings/notifications/{rule_id}/"),
    "console:notification-edit": ("owner", _T + "settings/notifications/{rule_id}/edit"),
    "console:notification-action": ("owner", _T + "settings/notifications/{rule_id}/remove"),
    "console:notification-delivery": ("owner", _T + "settings/deliveries/{delivery_id}/"),
    # operators
    "operators:cells": ("operator", _OPERATORS + "cells/"),
    "operators:cell": ("operator", _OPERATORS + "cells/{name}/"),
    "operators:relocation-plan": ("operator", _OPERATORS + "cells/{name}/drain"),
    "operators:relocation": ("operator", _OPERATORS + "relocations/{relocation}/"),
    "operators:regions": ("operator", _OPERATORS + "regions/"),
    "operators:site-wish": ("operator", _OPERATORS + "cells/{name}/sites/local/hand-over"),
    "operators:evacuation-plan": ("operator", _OPERATORS + "regions/local/evacuate"),
    "operators:evacuation": ("operator", _OPERATORS + "evacuations/{evacuation}/"),
    "operators:rehearsal-plan": ("operator", _OPERATORS + "regions/local/rehearse"),
    "operators:rehearsal": ("operator", _OPERATORS + "rehearsals/{rehearsal}/"),
    "operators:topology": ("operator", _OPERATORS + "topology/"),
    "operators:placements": ("operator", _OPERATORS + "placements/"),
    "operators:ownership": ("operator", _OPERATORS + "ownership/"),
    "operators:returns": ("operator", _OPERATORS + "returns/"),
    "operators:tenant-delays": ("operator", _OPERATORS + "tenants/demo/delays"),
    "operators:moves": ("operator", _OPERATORS + "moves/?tenant=demo"),
    "operators:move": ("operator", _OPERATORS + "moves/{move}/"),
    "operators:move-abort": ("operator", _OPERATORS + "moves/{move}/abort"),
    "operators:tenants": ("operator", _OPERATORS + "tenants/"),
    "operators:tenant": ("operator", _OPERATORS + "tenants/demo/"),
    "operators:money": ("operator", _OPERATORS + "money/"),
    "operators:meters": ("operator", _OPERATORS + "meters/"),
    "operators:periods": ("operator", _OPERATORS + "periods/"),
    "operators:invoices": ("operator", _OPERATORS + "invoices/"),
    "operators:invoice": ("operator", _OPERATORS + "invoices/{invoice_id}/"),
    "operators:exports": ("operator", _OPERATORS + "exports/"),
    "operators:prices": ("operator", _OPERATORS + "prices/"),
    "operators:price-new": ("operator", _OPERATORS + "prices/new"),
    "operators:contracts": ("operator", _OPERATORS + "contracts/?tenant=demo"),
    "operators:contract-new": ("operator", _OPERATORS + "contracts/new/demo/"),
    "operators:notifications": ("operator", _OPERATORS + "notifications/"),
    "operators:notification": ("operator", _OPERATORS + "notifications/{operator_rule_id}/"),
    "operators:erasures": ("operator", _OPERATORS + "erasures/?tenant=demo"),
    "operators:system": ("operator", _OPERATORS + "system/"),
    "operators:mail": ("operator", _OPERATORS + "mail/"),
}
#: Pages that say there is nothing.
STATUSES = {"console:invitation": 404, "console:erasure-certificate": 404}
#: Addresses without a page of their own: parts of pages, and what is only posted to.
PARTS = frozenset(
    {
        "console:overview-live", "console:herd-part", "console:events-part", "console:activity-live",
        "console:job-preview", "console:job-live",
        "console:run-live", "console:target-live", "console:queues-live", "console:queue-live",
        "console:workflow-live", "console:operation-live", "console:operation-stop",
        "console:dlq-choose", "console:dlq-begin", "console:redrive-live", "console:redrive-stop",
        "console:backfill-live", "console:backfill-stop",
        "console:selection-new", "console:selection", "console:operation", "console:run-cancel",
        "console:tenant-export-file", "console:returned-file",
        "console:erasure-cancel", "console:erasure-keys",
        "operators:erasure-cancel", "operators:erasure-certificate",
        "console:support-end", "console:support-grant", "console:work", "console:leave",
        "console:invitation-action", "console:invoice-pdf", "console:credit-note-pdf",
        "mfa_deactivate_totp", "mfa_view_recovery_codes", "mfa_generate_recovery_codes",
        "mfa_download_recovery_codes", "mfa_authenticate", "mfa_reauthenticate",
        "console:export-live", "console:export-file", "console:export-schedule",
        "operators:export-file", "operators:export-schedule", "operators:return-file",
        "operators:rehearsal-report",
        "operators:conflict-settle", "operators:drift-settle", "operators:period-close",
        "operators:invoice-pdf", "operators:invoice-act", "operators:price-withdraw",
        "operators:contract-end",
        "account_set_password", "operators:tenant-action", "operators:cell-lengthen",
        "operators:notification-act", "operators:notification-redeliver",
        # Codes by mail, which this installation does not use.
        "account_request_reauthentication_code", "account_confirm_reauthentication_code",
        "account_confirm_login_code",
    }
)  # fmt: skip
#: What begins so has no person in front of it, or is the admin's own, whose lists are pictured by model.
_PASSED_OVER = ("/v1/", "/internal/", "/openapi/", "/healthz", "/readyz", "/metrics")


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page to look at."""

    name: str
    role: Role
    path: str
    status: int = 200


def known_pages() -> list[Page]:
    """All of `PAGES`."""
    return [
        Page(
            name=name.removeprefix("console:").replace(":", "-").replace("_", "-"),
            role=role,
            path=path,
            status=STATUSES.get(name, 200),
        )
        for name, (role, path) in PAGES.items()
    ]


def addresses() -> Iterator[str]:
    """Names of everything a person may open, as the URL configuration says."""

    def walk(prefix: str, space: str, patterns: list[URLPattern | URLResolver]) -> Iterator[str]:
        for pattern in patterns:
            path = prefix + str(pattern.pattern)
            if path.startswith(_PASSED_OVER) or (path.startswith("/admin/") and "pages/" not in path):
                if isinstance(pattern, URLResolver) and path == "/admin/pages/":
                    yield from walk(path, f"{pattern.namespace}:", pattern.url_patterns)
                continue
            if isinstance(pattern, URLResolver):
                named = f"{pattern.namespace}:" if pattern.namespace else space
                yield from walk(path, named, pattern.url_patterns)
            elif pattern.name:
                yield space + pattern.name

    return walk("/", "", get_resolver().url_patterns)
