"""What happened: the newest events of the tenant's cell, with who decided them."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.urls import NoReverseMatch

from cells.contract import Scope
from controlplane.console.cells_client import Refused
from controlplane.console.happenings import Happening, happening
from controlplane.console.lists import LONGEST, asked, sentences
from controlplane.console.visit import Visit, tenant_page
from controlplane.tenants.models import Membership

#: The beginnings of types that can be asked for.
KINDS = ("job", "run", "target", "task_queue", "operation", "quota")
_SHORT = 8


@tenant_page(Scope.JOBS_READ)
def event_list(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/events"""
    filters = asked(visit, "type")
    context: dict[str, Any] = {"section": "overview", "filters": filters, "kinds": KINDS}
    try:
        context["happenings"] = newest(visit, limit=LONGEST, **filters)
    except Refused as refused:
        if refused.status != 422:
            raise
        context["faults"] = sentences(refused.faults, refused.detail)
        return visit.page("console/events.html", status=422, **context)
    return visit.page("console/events.html", **context)


@tenant_page(Scope.JOBS_READ)
def events_part(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/events/part: the newest few."""
    return visit.page("console/parts/events_part.html", happenings=newest(visit))


def newest(visit: Visit, *, limit: int = _SHORT, **filters: str) -> list[dict[str, Any]]:
    """The newest events, newest first, with the addresses of what they are about."""
    events = visit.cell.get("/v1/events", limit=limit, **filters)["items"]
    people = _people(visit, {str(event.get("actor") or "") for event in events})
    said = [happening(event, people) for event in reversed(events)]
    return [{"it": each, "href": _address(visit, each)} for each in said]


def _people(visit: Visit, actors: set[str]) -> dict[str, str]:
    ids = [actor.removeprefix("user:") for actor in actors if actor.startswith("user:")]
    members = Membership.objects.filter(tenant=visit.tenant, user__in=ids).select_related("user")
    return {member.user.actor_name: member.user.email for member in members}


def _address(visit: Visit, each: Happening) -> str:
    if not each.page:
        return ""
    if each.page == "dlq" and each.key:
        return f"{visit.url('dlq')}?fingerprint={each.key}"
    try:
        return visit.url(each.page, each.key) if each.key else visit.url(each.page)
    except NoReverseMatch:
        return ""
