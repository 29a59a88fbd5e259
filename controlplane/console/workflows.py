"""Workflows: list, one with its steps on the time axis, its raw history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.http import HttpResponse

from cells.contract import Scope
from cells.domain.workflow.definition import Definition
from cells.domain.workflow.keys import split_key
from cells.domain.workflow.parsing import DefinitionError, parse_definition
from controlplane.console.axis import FIT, SCALES
from controlplane.console.cells_client import CellAway, Refused, path
from controlplane.console.lists import LONGEST, PAGE, asked, next_page, sentences
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.workflow_graph import Graph, layout
from controlplane.console.workflow_lines import Lines, draw
from controlplane.console.workflow_words import (
    EVENTS,
    STEP_STATES,
    awaited,
    depths,
    history_share,
    is_open,
    status_words,
    timer_name,
)

#: Events on one page of a history.
_EVENTS = 100
#: Executions on one page of the reconciliation report; a cell reads the whole history of each.
_TO_COMPARE = 20
#: Executions of one id that its page names.
_EXECUTIONS = 20
#: Pages of workflows, of those whose ids begin alike, in which they are looked for.
_PAGES_OF_EXECUTIONS = 5
#: Steps that a page draws; a map over a thousand elements is read in the history.
_DRAWN = 300
_FILTERS = ("status", "definition", "prefix")


@tenant_page(Scope.WORKFLOWS_READ)
def workflow_list(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/workflows/; its part that changes, where htmx asks."""
    filters = asked(visit, *_FILTERS)
    context: dict[str, Any] = {
        "section": "workflows",
        "filters": filters,
        "statuses": status_words(),
        "items": [],
        "paged": bool(visit.request.GET.get("cursor")),
    }
    part = visit.request.htmx  # type: ignore[attr-defined]
    template = "console/workflows/list_live.html" if part else "console/workflows/list.html"
    try:
        cursor = visit.request.GET.get("cursor", "")
        found = visit.cell.get("/v1/workflows", limit=PAGE, cursor=cursor, **filters)
    except Refused as refused:
        if refused.status != 422:
            raise
        context["faults"] = sentences(refused.faults, refused.detail)
        return visit.page(template, status=422, **context)
    context["items"] = found["items"]
    context["next"] = next_page(visit, filters, found["next_cursor"])
    context["looked_back_to"] = found.get("looked_back_to")
    if not found["items"] and not found["next_cursor"] and not filters and not part:
        context |= _first_steps(visit)
    return visit.page(template, **context)


def _first_steps(visit: Visit) -> dict[str, Any]:
    """What somebody does who has none: register a definition, start one."""
    found = visit.cell.get("/v1/workflow-definitions", limit=1)["items"]
    return {"definition": found[0]["name"] if found else None, "api_url": settings.PUBLIC_API_URL}


@tenant_page(Scope.WORKFLOWS_READ)
def reconciliation(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/workflow-reconciliation: what somebody should compare with the other side's books."""
    cursor = visit.request.GET.get("cursor", "")
    context: dict[str, Any] = {"section": "workflows", "items": [], "paged": bool(cursor)}
    try:
        found = visit.cell.get("/v1/workflows/reconciliation", limit=_TO_COMPARE, cursor=cursor)
    except Refused as refused:
        if refused.status != 422:
            raise
        context["faults"] = sentences(refused.faults, refused.detail)
        return visit.page("console/workflows/reconciliation.html", status=422, **context)
    return visit.page(
        "console/workflows/reconciliation.html",
        **{**context, "items": found["items"], "next": next_page(visit, {}, found["next_cursor"])},
    )


@tenant_page(Scope.WORKFLOWS_READ)
def workflow_detail(visit: Visit, workflow_id: str) -> HttpResponse:
    """GET /t/<slug>/workflows/<id>/; `?run=` an earlier execution."""
    context = _workflow(visit, workflow_id)
    definition = context["definition"]
    return visit.page(
        "console/workflows/detail.html",
        section="workflows",
        graph=None if definition is None else graph_of(definition, context["steps"], context["flow"]),
        executions=_executions(visit, workflow_id),
        **context,
    )


@tenant_page(Scope.WORKFLOWS_READ)
def workflow_live(visit: Visit, workflow_id: str) -> HttpResponse:
    """GET /t/<slug>/workflows/<id>/live: the parts that change."""
    return visit.page("console/workflows/live.html", **_workflow(visit, workflow_id))


def _workflow(visit: Visit, workflow_id: str) -> dict[str, Any]:
    run = visit.request.GET.get("run", "")[:64]
    found = visit.cell.get(path("workflows", workflow_id), run_id=run)
    steps = visit.cell.get(path("workflows", workflow_id, "timeline"), run_id=found["run_id"])["steps"]
    definition = definition_of(visit, found)
    scale = visit.request.GET.get("scale", FIT)
    share, full = history_share(found)
    return {
        "flow": found,
        "run": run,
        "open": is_open(found["status"]),
        "lines": _lines(visit, found, steps, scale, definition),
        "more_steps": max(0, len(steps) - _DRAWN),
        "timers": [{**timer, "name": timer_name(timer["step"])} for timer in found["pending_timers"]],
        "definition": definition,
        "steps": steps,
        "signals": [] if definition is None else awaited(definition),
        "share": share,
        "full": full,
        # Acts are about the execution that is open, or was last; not about an earlier one.
        "acts": _acts(visit, found) if not run else (),
    }


def _lines(
    visit: Visit,
    found: Mapping[str, Any],
    steps: list[dict[str, Any]],
    scale: str,
    definition: Definition | None,
) -> Lines:
    return draw(
        found,
        steps[-_DRAWN:],
        now=visit.now,
        zone=visit.zone,
        scale=scale if scale in SCALES else FIT,
        around=None if definition is None else depths(definition),
    )


def _acts(visit: Visit, found: Mapping[str, Any]) -> tuple[str, ...]:
    """What the member may do to it as it is."""
    if not visit.may_write_workflows:
        return ()
    if found["status"] == "COMPENSATION_STUCK":
        return ("resolve", "terminate")
    if found["status"] == "RUNNING":
        return ("signal", "cancel", "terminate", "reset", "migrate")
    if is_open(found["status"]):
        return ("terminate", "reset", "migrate")
    return ("reset",)


def definition_of(visit: Visit, found: Mapping[str, Any]) -> Definition | None:
    """What an execution follows; None if its text cannot be read here."""
    version = str(found["version"])
    try:
        row = visit.cell.get(path("workflow-definitions", found["definition"], "versions", version))
        return parse_definition(row["source"], name=row["name"], version=row["version"])
    except (Refused, DefinitionError):
        return None  # the page says what it can without


def graph_of(definition: Definition, steps: list[dict[str, Any]], found: Mapping[str, Any]) -> Graph:
    """The definition, with how each step stands. Of a map's elements the worst one counts."""
    order = ("", "mute", "good", "wait", "live", "bad")
    looks: dict[str, str] = {}
    for step in steps:
        name, _ = split_key(step["step"])
        state = step["state"]
        if state == "OPEN":
            look = "wait" if step["kind"] in ("wait", "timer") else "live"
            look = look if is_open(found["status"]) else "mute"
        elif state == "GROUP":
            look = ""
        else:
            look = STEP_STATES.get(state, ("", "mute", ""))[1]
        if order.index(look) >= order.index(looks.get(name, "")):
            looks[name] = look
    return layout(definition, looks)


def _executions(visit: Visit, workflow_id: str) -> list[dict[str, Any]]:
    """Executions of the id, the latest first; none where there is only one."""
    same: dict[str, dict[str, Any]] = {}
    cursor = ""
    try:
        for _ in range(_PAGES_OF_EXECUTIONS):
            # Other ids begin as this one does: order-1 stands among order-10 and order-11.
            found = visit.cell.get("/v1/workflows", prefix=workflow_id, limit=LONGEST, cursor=cursor)
            same |= {each["run_id"]: each for each in found["items"] if each["workflow_id"] == workflow_id}
            cursor = found["next_cursor"] or ""
            if not cursor or len(same) >= _EXECUTIONS:
                break
    except CellAway:
        return []  # the page is there without them
    return list(same.values())[:_EXECUTIONS] if len(same) > 1 else []


@tenant_page(Scope.WORKFLOWS_READ)
def workflow_history(visit: Visit, workflow_id: str) -> HttpResponse:
    """GET /t/<slug>/workflows/<id>/history?after=: what was recorded, a page at a time."""
    run, after = visit.request.GET.get("run", "")[:64], visit.request.GET.get("after", "")[:12]
    found = visit.cell.get(path("workflows", workflow_id), run_id=run)
    context: dict[str, Any] = {"section": "workflows", "flow": found, "run": run, "after": after}
    try:
        page = visit.cell.get(
            path("workflows", workflow_id, "history"), run_id=found["run_id"], after=after, limit=_EVENTS
        )
    except Refused as refused:
        if refused.status != 422:
            raise
        context["faults"] = sentences(refused.faults, refused.detail)
        return visit.page("console/workflows/history.html", status=422, **context)
    events = [{**event, "said": EVENTS.get(event["type"], ""), **_split(event)} for event in page["items"]]
    return visit.page(
        "console/workflows/history.html", events=events, next_after=page["next_after"], **context
    )


def _split(event: Mapping[str, Any]) -> dict[str, Any]:
    """The step an event is about, apart from its data."""
    data = {name: value for name, value in event["data"].items() if name != "step"}
    return {"step": event["data"].get("step"), "data": data}
