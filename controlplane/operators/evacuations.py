"""Regions that are left, or come back to: a plan first, then how far it is; pausing and giving up."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.adminsite import operator
from controlplane.errors import Refused
from controlplane.evacuations.actions import (
    MOST_AT_ONCE,
    abort_evacuation,
    pause_evacuation,
    plan_evacuation,
    resume_evacuation,
    start_evacuation,
)
from controlplane.evacuations.machine import ENDED, State
from controlplane.evacuations.models import EVACUATION, EvacuatedCell, Evacuation, EvacuationStep
from controlplane.identity import decode
from controlplane.operators.pages import act, operator_page, page
from controlplane.topology.models import Region

#: While one is under way its page is asked for again after so many seconds.
_AGAIN_SECONDS = 2
_KINDS = {"evacuate": "EVACUATE", "fail-back": "FAIL_BACK"}
_WAY = (State.WAITING, State.SETTLE, State.CATCH_UP, State.HAND_OVER, State.WATCH, State.DONE)
_STEPS = 200


def _number(text: str) -> int:
    """A pace as it was typed; one that is none is refused by the use-case."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else 0


@operator_page("GET", "POST")
def plan(request: HttpRequest, name: str, kind: str) -> HttpResponse:
    """GET /admin/pages/regions/<name>/evacuate (or /fail-back) shows who would go where; POST begins it."""
    if kind not in _KINDS or not Region.objects.filter(pk=name).exists():
        raise Http404
    if request.method == "POST":
        return _begun(request, name, kind)
    try:
        found = plan_evacuation(region=name, kind=_KINDS[kind])
    except Refused as refused:
        messages.error(request, f"There is no plan: {refused}")
        return redirect("operators:regions")
    return page(
        request,
        "evacuation_plan.html",
        f"Evacuate {name}" if kind == "evacuate" else f"Fail back to {name}",
        region=name,
        kind=kind,
        plan=found,
        tenants=sum(step.tenants for step in found.going),
        stops=sum(step.moves_to_stop for step in found.going),
        most=MOST_AT_ONCE,
    )


def _begun(request: HttpRequest, name: str, kind: str) -> HttpResponse:
    given = request.POST
    try:
        made = start_evacuation(
            region=name,
            kind=_KINDS[kind],
            at_once=_number(given.get("at_once", "")),
            override="override" in given,
            actor=operator(request),
            reason=given.get("reason", "").strip()[:300],
        )
    except Refused as refused:
        messages.error(request, f"Nothing was begun: {refused}")
        return redirect("operators:evacuation-plan", name, kind)
    messages.success(request, f"{made.cells.count()} cells are handed over, {made.at_once} at the same time.")
    return redirect("operators:evacuation", made.public_id)


@operator_page("GET", "POST")
def one_evacuation(request: HttpRequest, evacuation: str) -> HttpResponse:
    """GET /admin/pages/evacuations/<id>/ shows how far it is; POST pauses, resumes or gives it up."""
    uuid = decode(EVACUATION, evacuation)
    found = None if uuid is None else Evacuation.objects.filter(pk=uuid).first()
    if found is None:
        raise Http404
    if request.method == "POST":
        _change(request, found)
        return redirect("operators:evacuation", evacuation)
    rows = list(found.cells.order_by("position"))
    over = sum(row.at in ENDED for row in rows)
    answer = page(
        request,
        "evacuation.html",
        f"{found.get_kind_display()} {found.region_id}",
        evacuation=found,
        rows=[(row, way_of(row)) for row in rows],
        over=over,
        handed_over=sum(row.at in (State.WATCH, State.DONE) and not row.returning for row in rows),
        coming_back=sum(row.returning and row.at is not State.DONE for row in rows),
        share=round(100 * over / len(rows), 1) if rows else 100.0,
        stay=[step for step in found.plan.get("steps", ()) if step["target"] is None],
        steps=EvacuationStep.objects.filter(evacuated__evacuation=found)
        .select_related("evacuated")
        .order_by("-id")[:_STEPS],
        most=MOST_AT_ONCE,
    )
    if found.finished_at is None:
        answer["Refresh"] = str(_AGAIN_SECONDS)
    return answer


def way_of(row: EvacuatedCell) -> list[tuple[str, str]]:
    """The states in order, each passed, present or to come; the one that a cell is in instead stands last."""
    at = _WAY.index(row.at) if row.at in _WAY else -1
    way = [
        (state.value, "passed" if n < at else "present" if n == at else "to come")
        for n, state in enumerate(_WAY)
    ]
    return way if at >= 0 else [(row.state, "present")]


def _change(request: HttpRequest, found: Evacuation) -> None:
    given = request.POST
    reason = given.get("reason", "").strip()[:300]
    match given.get("verb", ""):
        case "pause":
            act(request, pause_evacuation, "No further cell is begun.", evacuation_id=found.id, reason=reason)
        case "resume":
            pace = given.get("at_once", "")
            more = {"at_once": _number(pace)} if pace else {}
            act(request, resume_evacuation, "It goes on.", evacuation_id=found.id, reason=reason, **more)
        case "abort":
            back = "hand_back" in given
            done = "It is given up" + ("; what was handed over comes back." if back else ".")
            act(request, abort_evacuation, done, evacuation_id=found.id, hand_back=back, reason=reason)
        case _:
            raise Http404
