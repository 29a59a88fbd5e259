"""Cells that are drained or filled: a plan first, then how far it is; pausing and ending it."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.adminsite import operator
from controlplane.errors import Refused
from controlplane.identity import decode
from controlplane.operators.pages import act, operator_page, page
from controlplane.operators.topology import share_of
from controlplane.tenants.models import Tenant, tenant_uuid
from controlplane.topology.actions.relocations import (
    MOST_AT_ONCE,
    pause_relocation,
    plan_relocation,
    resume_relocation,
    start_drain,
    start_fill,
    stop_relocation,
)
from controlplane.topology.models import RELOCATION, Cell, Relocation, RelocationKind, RelocationState
from controlplane.topology.relocating import moves_of, progress_of

#: While one is under way its page is asked for again after so many seconds.
_AGAIN_SECONDS = 3
_SHOWN = 200
_VERBS = {"pause": pause_relocation, "resume": resume_relocation, "stop": stop_relocation}
_DONE = {
    "pause": "It begins no further moves; those under way go on.",
    "resume": "It goes on.",
    "stop": "It was ended. Who has moved stays there.",
}


def _number(text: str) -> int:
    """A pace as it was typed; one that is none is refused by the use-case."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else 0


@operator_page("GET", "POST")
def plan(request: HttpRequest, name: str, kind: str) -> HttpResponse:
    """GET /admin/pages/cells/<name>/drain (or /fill) shows who would move where; POST begins it."""
    cell = Cell.objects.filter(pk=name).first()
    if cell is None or kind not in ("drain", "fill"):
        raise Http404
    if request.method == "POST":
        return _begun(request, cell, kind)
    try:
        found = plan_relocation(cell=name, kind=RelocationKind(kind.upper()))
    except Refused as refused:
        messages.error(request, f"There is no plan: {refused}")
        return redirect("operators:cell", name)
    slugs = _slugs([step.tenant_id for step in found.steps[:_SHOWN]])
    return page(
        request,
        "relocation_plan.html",
        f"{kind.capitalize()} {name}",
        cell=cell,
        kind=kind,
        plan=found,
        steps=[(slugs.get(step.tenant_id, step.tenant_id), step) for step in found.steps[:_SHOWN]],
        runs=sum(step.runs_per_second for step in found.steps),
        most=MOST_AT_ONCE,
        open_one=cell.relocations.filter(state__in=[RelocationState.RUNNING, RelocationState.PAUSED]).first(),
    )


def _slugs(ids: list[str]) -> dict[str, str]:
    uuids = {tenant_uuid(text): text for text in ids}
    rows = Tenant.objects.filter(pk__in=[found for found in uuids if found is not None])
    return {uuids[pk]: slug for pk, slug in rows.values_list("pk", "slug")}


def _begun(request: HttpRequest, cell: Cell, kind: str) -> HttpResponse:
    given = request.POST
    at_once, reason = _number(given.get("at_once", "")), given.get("reason", "").strip()[:300]
    actor = operator(request)
    try:
        if kind == "drain":
            made = start_drain(
                cell=cell.name, at_once=at_once, override="override" in given, actor=actor, reason=reason
            )
        else:
            made = start_fill(cell=cell.name, at_once=at_once, actor=actor, reason=reason)
    except Refused as refused:
        messages.error(request, f"Nothing was begun: {refused}")
        return redirect("operators:relocation-plan", cell.name, kind)
    messages.success(request, f"{made.total} tenants move, {at_once} at the same time.")
    return redirect("operators:relocation", made.public_id)


@operator_page("GET", "POST")
def one_relocation(request: HttpRequest, relocation: str) -> HttpResponse:
    """GET /admin/pages/relocations/<id>/ shows how far it is; POST pauses, resumes or ends it."""
    uuid = decode(RELOCATION, relocation)
    found = None if uuid is None else Relocation.objects.filter(pk=uuid).first()
    if found is None:
        raise Http404
    if request.method == "POST":
        verb = request.POST.get("verb", "")
        if verb not in _VERBS:
            raise Http404
        pace = request.POST.get("at_once", "")
        more = {"at_once": _number(pace)} if verb == "resume" and pace else {}
        reason = request.POST.get("reason", "").strip()[:300]
        act(request, _VERBS[verb], _DONE[verb], relocation_id=found.id, reason=reason, **more)
        return redirect("operators:relocation", relocation)
    progress = progress_of(found)
    slugs = _slugs(list(found.stuck))
    answer = page(
        request,
        "relocation.html",
        f"{found.get_kind_display()} of {found.cell_id}",
        relocation=found,
        progress=progress,
        share=share_of(progress),
        stuck=[(slugs.get(tenant, tenant), why) for tenant, why in sorted(found.stuck.items())],
        moves=moves_of(found).select_related("tenant").order_by("-created_at")[:_SHOWN],
        most=MOST_AT_ONCE,
    )
    if found.finished_at is None:
        answer["Refresh"] = str(_AGAIN_SECONDS)
    return answer
