"""Pause, resume or cancel many jobs: a frozen selection is looked at first, and only it is touched.

The cell freezes what a filter (or ticked rows) means at that moment. What is applied is that list and
nothing else, however the jobs change; it is named by its hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.cells_client import CellAway, Refused, path
from controlplane.console.lists import sentences
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.wording import STATES, parse

#: The filters of the jobs' list that a selection can freeze.
FILTERS = ("state", "target", "tag", "name_prefix", "due_from", "due_until")
_MOST_TICKED = 1000
_OVER = ("COMPLETED", "CANCELLED")
#: Jobs changed in a second, at most.
PACE = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    """What is done to many jobs: its words, and what it means for each."""

    verb: str
    word: str
    done: str
    means: tuple[str, ...]
    danger: bool = False


ACTS: dict[str, Act] = {
    act.verb: act
    for act in (
        Act(
            verb="pause",
            word="Pause",
            done="paused",
            means=(
                "Their planned occurrences do not run until they are resumed; each is recorded as skipped.",
                "Runs under way go on. Jobs that are not scheduled are left as they are.",
            ),
        ),
        Act(
            verb="resume",
            word="Resume",
            done="scheduled again",
            means=(
                "The next occurrence after now is planned for each that recurs; what it missed does not run.",
                "A job for a single time that went by meanwhile runs now.",
                "Jobs that are not paused are left as they are.",
            ),
        ),
        Act(
            verb="cancel",
            word="Cancel",
            done="cancelled",
            means=(
                "Planned occurrences and waiting runs end. Runs under way go on.",
                "A cancelled job cannot be started again.",
            ),
            danger=True,
        ),
    )
}


@tenant_page(Scope.JOBS_WRITE, "POST")
def selection_new(visit: Visit) -> HttpResponse:
    """POST /t/<slug>/selections/: freeze the ticked rows, or all jobs that fit the list's filters."""
    posted = visit.request.POST
    act = ACTS.get(posted.get("action", ""))
    if act is None:
        raise Http404
    ticked = posted.getlist("job")
    if len(ticked) > _MOST_TICKED:
        messages.error(
            visit.request,
            f"Nothing was selected: {len(ticked)} rows are ticked, and at most {_MOST_TICKED} can be."
            " Filter the list instead, and change all that fit.",
        )
        return _back(visit)
    chosen: dict[str, Any] = {"job_ids": ticked} if ticked else {}
    if not ticked and posted.get("state", "") in _OVER:
        said = STATES[posted["state"]][0].lower()
        messages.info(visit.request, f"Jobs that are {said} stay as they are; there is nothing to change.")
        return _back(visit)
    if not ticked:
        chosen = {name: text for name in FILTERS if (text := posted.get(name, "").strip()[:200])}
        if posted.get("all") != "1":
            return _ask_whether_all(visit, act, chosen)
    try:
        found = visit.cell.post("/v1/selections", {"filter": chosen, "action": act.verb}).document
    except Refused as refused:
        for text in sentences(refused.faults, refused.detail):
            messages.error(visit.request, text)
        return _back(visit)
    if not found["count"]:
        messages.info(visit.request, f"None of these jobs can be {act.done}; nothing was selected.")
        return _back(visit)
    return redirect(visit.url("selection", found["selection_id"]))


def _ask_whether_all(visit: Visit, act: Act, chosen: Mapping[str, Any]) -> HttpResponse:
    """No row is ticked: that may mean all, or a forgotten tick. Nothing is selected before it is said."""
    return visit.page(
        "console/jobs/selection_all.html",
        section="jobs",
        act=act,
        filters=described(chosen),
        fields=list(chosen.items()),
        back=f"{visit.url('jobs')}?{urlencode(chosen)}" if chosen else visit.url("jobs"),
    )


def _back(visit: Visit) -> HttpResponse:
    """To the list with its filters."""
    kept = {name: text for name in FILTERS if (text := visit.request.POST.get(name, "").strip()[:200])}
    return redirect(f"{visit.url('jobs')}?{urlencode(kept)}" if kept else visit.url("jobs"))


@tenant_page(Scope.JOBS_WRITE, "GET", "POST")
def selection(visit: Visit, selection_id: str) -> HttpResponse:
    """GET shows what is frozen and what would happen; POST applies it, by its hash."""
    found = visit.cell.get(path("selections", selection_id))
    act = ACTS.get(str(found["action"]).lower())
    if act is None:
        raise Http404
    if visit.request.method == "POST":
        try:
            body = {"hash": visit.request.POST.get("hash", "")[:128], "max_per_second": PACE}
            answer = visit.cell.post(path("selections", selection_id, verb="apply"), body).document
        except Refused as refused:
            if refused.status == 404:
                raise
            messages.error(visit.request, refused.detail)
        except CellAway as away:
            messages.error(visit.request, f"{away} Whether it began is not known; look again.")
        else:
            return redirect(visit.url("operation", answer["operation_id"]))
        return redirect(visit.url("selection", selection_id))
    expires = parse(found["expires_at"])
    return visit.page(
        "console/jobs/selection.html",
        section="jobs",
        selection=found,
        act=act,
        expired=expires is not None and expires <= visit.now,
        sample=[{"job": job, "label": job["name"] or job["key"] or job["job_id"]} for job in found["sample"]],
        pace=PACE,
        more=found["count"] - len(found["sample"]),
        filters=described(found.get("filter") or {}),
        ticked=bool((found.get("filter") or {}).get("job_ids")),
    )


def described(filters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a selection was made from, in words."""
    words = {
        "state": "status",
        "target": "target",
        "tag": "tag",
        "name_prefix": "name begins with",
        "due_from": "due from",
        "due_until": "due until",
    }
    said = [(words[name], str(filters[name])) for name in words if filters.get(name)]
    return [
        (name, STATES.get(text, (text,))[0].lower()) if name == "status" else (name, text)
        for name, text in said
    ]
