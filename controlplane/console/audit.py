"""The audit log: every change, who made it, and what was before and after."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpResponse

from cells.contract import Scope
from controlplane.console.lists import PAGE, asked, next_page
from controlplane.console.visit import Visit, tenant_page
from controlplane.events.models import AuditEvent
from controlplane.identity import AUDIT, decode, encode
from controlplane.tenants.models import ApiKey, Membership, User


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One field of a change, as text; None where it was not there."""

    field: str
    before: str | None
    after: str | None


def differences(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[Difference]:
    """What changed, field by field. Fields that stayed are left out."""
    old, new = _flat(before or {}), _flat(after or {})
    return [
        Difference(field=name, before=old.get(name), after=new.get(name))
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            found |= _flat(inner, f"{prefix}{name}.")
        else:
            found[prefix + name] = _said(inner)
    return found


def _said(value: Any) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(_said, value)) if isinstance(value, list) else str(value)


def names_of(visit: Visit, actors: Iterable[str]) -> dict[str, str]:
    """Actors as people read them. Operators are named as such, not by who they are."""
    wanted = set(actors)
    people = {_uuid(name.removeprefix("user:")) for name in wanted if name.startswith("user:")} - {None}
    keys = {name.removeprefix("key:") for name in wanted if name.startswith("key:")}
    names = {
        user.actor_name: "Clockhouse operator" if user.is_staff else user.email
        for user in User.objects.filter(pk__in=people)
    }
    names |= {
        f"key:{key.id}": f"key “{key.name}”" if key.tenant_id else "Clockhouse operator"
        for key in ApiKey.objects.filter(pk__in=keys)
        if key.tenant_id in (None, visit.tenant.id)
    }
    own = {
        member.user.actor_name: member.user.email
        for member in Membership.objects.select_related("user").filter(tenant=visit.tenant, user__in=people)
    }
    return {
        name: names.get(name, "Clockhouse" if name.startswith("service:") else name) for name in wanted
    } | own


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


@tenant_page(Scope.ADMIN)
def audit_log(visit: Visit) -> HttpResponse:
    """GET …/settings/audit?action=&actor=&subject=&since=&until=&cursor="""
    filters = asked(visit, "action", "actor", "subject", "since", "until")
    events, faults = _events(visit, filters)
    cursor = visit.request.GET.get("cursor", "")
    if cursor:
        before = decode(AUDIT, cursor)
        if before is None:
            faults.append("The address of this page is not one of this list.")
        else:
            events = events.filter(id__lt=before)
    rows = [] if faults else list(events.order_by("-id")[: PAGE + 1])
    more = len(rows) > PAGE
    rows = rows[:PAGE]
    members = Membership.objects.select_related("user").filter(tenant=visit.tenant).order_by("user__email")
    names = names_of(visit, (row.actor for row in rows))
    return visit.page(
        "console/settings/audit.html",
        status=422 if faults else 200,
        section="settings",
        tab="audit",
        filters=filters,
        faults=faults,
        events=[
            {
                "event": row,
                "who": names[row.actor],
                "differences": differences(row.before, row.after),
                "of_actor": "?" + urlencode({"actor": row.actor}),
                "of_subject": "?" + urlencode({"subject": row.subject}),
            }
            for row in rows
        ],
        people=[(member.user.actor_name, member.user.email) for member in members],
        next=next_page(visit, filters, encode(AUDIT, rows[-1].id) if more else None),
        paged=bool(cursor),
    )


def _events(visit: Visit, filters: Mapping[str, str]) -> tuple[QuerySet[AuditEvent], list[str]]:
    events = AuditEvent.objects.filter(tenant_id=visit.tenant.id)
    faults: list[str] = []
    if action := filters.get("action"):
        events = events.filter(action__startswith=action)
    for name in ("actor", "subject"):
        if value := filters.get(name):
            events = events.filter(**{name: value})
    for name, days in (("since", 0), ("until", 1)):
        if text := filters.get(name):
            try:
                day = date.fromisoformat(text) + timedelta(days=days)
                at = datetime.combine(day, time(), tzinfo=visit.zone)
            except (ValueError, OverflowError):
                faults.append(f"{text} is no day; write it as 2026-11-30.")
                continue
            events = events.filter(at__gte=at) if name == "since" else events.filter(at__lt=at)
    return events, faults
