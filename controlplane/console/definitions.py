"""Definitions of workflows: list, one with its versions and its graph, checking and registering a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from cells.domain.workflow.definition import Definition
from cells.domain.workflow.parsing import SOURCE_LIMIT, DefinitionError, parse_definition
from controlplane.client.definition_calls import named_in
from controlplane.console.acting import Form
from controlplane.console.cells_client import CellAway, Fault, Refused, path
from controlplane.console.lists import PAGE, asked, at_most_shown, next_page, sentences
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.workflow_graph import layout
from controlplane.console.workflow_words import said, what_it_does

#: Versions that a definition's page names.
_VERSIONS = 50
_SHOWN = 100
FIRST = """\
workflow: order_fulfillment
version: 1
steps:
  - id: charge_card
    activity: { task_queue: payments, type: CHARGE }
    retry: { max_attempts: 5, initial_backoff: 2s }
    compensate_with: refund_card
  - id: wait_for_pickup
    wait_for_signal: { name: picked_up, timeout: 3d }
    on_timeout: compensate
  - id: ship
    activity: { task_queue: shipping, type: CREATE_SHIPMENT }
compensations:
  - id: refund_card
    activity: { task_queue: payments, type: REFUND }
"""


@tenant_page(Scope.WORKFLOWS_READ)
def definition_list(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/definitions/"""
    filters = asked(visit, "name")
    context: dict[str, Any] = {"section": "workflows", "filters": filters, "items": [], "first": FIRST}
    try:
        cursor = visit.request.GET.get("cursor", "")
        found = visit.cell.get("/v1/workflow-definitions", limit=PAGE, cursor=cursor, **filters)
    except Refused as refused:
        if refused.status != 422:
            raise
        context["faults"] = sentences(refused.faults, refused.detail)
        return visit.page("console/definitions/list.html", status=422, **context)
    context["items"] = found["items"]
    context["next"] = next_page(visit, filters, found["next_cursor"])
    context["paged"] = bool(cursor)
    return visit.page("console/definitions/list.html", **context)


@tenant_page(Scope.WORKFLOWS_READ)
def definition(visit: Visit, name: str) -> HttpResponse:
    """GET /t/<slug>/definitions/<name>/: the newest version, or `?version=`."""
    asked_for = visit.request.GET.get("version", "")[:10]
    place = ("versions", asked_for) if asked_for.isascii() and asked_for.isdecimal() else ()
    row = visit.cell.get(path("workflow-definitions", name, *place))
    page = visit.cell.get("/v1/workflow-definitions", name=name, limit=_VERSIONS)
    running = visit.cell.get("/v1/workflows", definition=name, status="RUNNING", limit=_SHOWN)
    context = {"row": row, "versions": page["items"], "more_versions": bool(page["next_cursor"])}
    context |= {"running": at_most_shown(running), "newest": page["items"][0]["version"]}
    context |= _drawn(row["source"], name, row["version"])
    return visit.page("console/definitions/detail.html", section="workflows", **context)


def _drawn(text: str, name: str, version: int | None = None) -> dict[str, Any]:
    """Its graph and its words; nothing where this process cannot read what the cell accepted."""
    try:
        parsed = parse_definition(text, name=name, version=version)
    except DefinitionError:
        return {}
    return drawing(parsed)


def drawing(parsed: Definition) -> dict[str, Any]:
    """A definition as a graph and in words."""
    undoing = [(name, what_it_does(step)) for name, step in parsed.compensations.items()]
    return {
        "graph": layout(parsed),
        "said": said(parsed.steps),
        "undoing": undoing,
        "description": parsed.description,
    }


# --- checking and registering ------------------------------------------------------------------
@tenant_page(Scope.WORKFLOWS_READ, "GET", "POST")
def definition_new(visit: Visit) -> HttpResponse:
    """GET shows the form, perhaps with a version to go on from; POST checks the text against what runs, or
    registers it."""
    if visit.request.method == "GET":
        return _form(visit, Form(values={"text": _proposed(visit)}))
    # A browser sends the ends of lines as two characters.
    text = visit.request.POST.get("text", "").replace("\r\n", "\n")
    form = Form(values={"text": text, "reason": ""})
    place = _place(form, text)
    if place is None:
        return _form(visit, form, 422)
    registering = visit.request.POST.get("act") == "register"
    if registering and not visit.may_write_workflows:
        raise Refused(403, {})
    name, version = place
    target = path("workflow-definitions", name, "versions", version)
    try:
        if registering:
            answer = visit.cell.put_text(target, text)
        else:
            checked = visit.cell.post_text(f"{target}:check", text, cursor=_cursor(visit)).document
    except Refused as refused:
        if refused.status in (403, 404):
            raise
        return _form(visit, form, refused.status, lines=by_line(text, refused.faults), refused=refused)
    except CellAway as away:
        form.general.append(f"{away} What you typed is still here, and sending it again is safe.")
        return _form(visit, form, 503)
    if not registering:
        return _form(visit, form, checked=checked, **_so_far(visit, checked), **_drawn(text, name))
    what = f"{name} {version}"
    if answer.status == 201:
        messages.success(
            visit.request, f"{what} is registered. New starts take it; what runs stays as it is."
        )
    else:
        messages.info(visit.request, f"{what} was registered before, with this same text.")
    return redirect(f"{visit.url('definition', name)}?version={version}")


def _cursor(visit: Visit) -> str:
    """Where a check goes on; nothing where it begins."""
    return visit.request.POST.get("cursor", "")[:512] if visit.request.POST.get("act") == "go-on" else ""


def _so_far(visit: Visit, checked: Mapping[str, Any]) -> dict[str, Any]:
    """What the pages of a check looked at and found, this one among them; of how many."""
    before = visit.request.POST if _cursor(visit) else {}
    counts = {
        "looked_at": checked["looked_at"],
        "could": len(checked["compatible"]),
        "could_not": len(checked["blocked"]),
        "undecided": len(checked["undecided"]),
    }
    totals = {name: number + _whole(before.get(name)) for name, number in counts.items()}
    return {"totals": totals, "open_in_all": checked["open"] or _whole(before.get("open"))}


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _proposed(visit: Visit) -> str:
    """The text to begin with: the next version of one that is named, or a first one."""
    name = visit.request.GET.get("from", "")[:64]
    if not name:
        return FIRST if "example" in visit.request.GET else ""
    row = visit.cell.get(path("workflow-definitions", name))
    return next_version(row["source"], row["version"])


def next_version(text: str, version: int) -> str:
    """The text with its version counted up, where it says one in a line of its own."""
    said_, after = f"version: {version}", f"version: {version + 1}"
    lines = text.split("\n")
    return "\n".join(after if line.strip() == said_ and not line[:1].isspace() else line for line in lines)


def _place(form: Form, text: str) -> tuple[str, str] | None:
    """The name and version that a text says it is; or the form says what is missing."""
    if not text.strip():
        form.faults["text"] = ["is empty"]
    elif len(text.encode()) > SOURCE_LIMIT:
        form.faults["text"] = [f"is longer than {SOURCE_LIMIT // 1024} KiB"]
    else:
        name, version = named_in(text, "workflow"), named_in(text, "version")
        if name is None:
            form.faults["text"] = ["needs `workflow`, its name, at the beginning of a line"]
        if version is None or not (version.isascii() and version.isdecimal()):
            form.faults.setdefault("text", []).append(
                "needs `version`, a whole number, at the beginning of a line"
            )
        if not form.faults and name is not None and version is not None:
            return name, version
    return None


def by_line(text: str, faults: Iterable[Fault]) -> list[dict[str, Any]]:
    """Lines that have faults, with the faults of each."""
    lines = text.split("\n")
    found: dict[int, list[str]] = {}
    for fault in faults:
        found.setdefault(fault.line or 1, []).append(fault.detail)
    return [
        {"number": number, "text": lines[number - 1] if number <= len(lines) else "", "faults": details}
        for number, details in sorted(found.items())
    ]


def _form(visit: Visit, form: Form, status: int = 200, **context: Any) -> HttpResponse:
    refused = context.pop("refused", None)
    if refused is not None and not context.get("lines"):
        form.general.append(refused.detail)
    return visit.page(
        "console/definitions/new.html",
        status=status,
        section="workflows",
        form=form,
        example=FIRST,
        **context,
    )
