"""What can be done to a workflow: each says what it will touch before, and what it did after."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect

from cells.contract import ErrorCode, Scope
from cells.domain.workflow.definition import Definition
from controlplane.console.acting import Form, done
from controlplane.console.cells_client import CellAway, Refused, path
from controlplane.console.lists import LONGEST
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.wording import counted
from controlplane.console.workflow_points import Standing, points_of, standing_of
from controlplane.console.workflow_words import STATUSES, awaited, is_open
from controlplane.console.workflows import definition_of

#: verb -> (title, what the button says, whether it destroys)
_VERBS: dict[str, tuple[str, str, bool]] = {
    "signal": ("Send a signal to", "Send the signal", False),
    "cancel": ("Cancel", "Cancel the workflow", True),
    "terminate": ("Terminate", "Terminate it", True),
    "reset": ("Reset", "Reset it", True),
    "migrate": ("Migrate", "Migrate it", False),
    "resolve": ("Resolve", "Decide", True),
}
_FIELDS = ("name", "payload", "signal_id", "step", "version", "action", "note", "reason", "run_id")


#: What can be said to an execution by its id.
_OF_AN_EXECUTION = frozenset({"cancel", "terminate", "resolve"})


@dataclass(kw_only=True)
class _Act:
    """One act on one workflow, with what is known of it."""

    verb: str
    found: Mapping[str, Any]
    standing: Standing
    definition: Definition | None
    versions: list[Mapping[str, Any]] = field(default_factory=list)


@tenant_page(Scope.WORKFLOWS_WRITE, "GET", "POST")
def workflow_act(visit: Visit, workflow_id: str, verb: str) -> HttpResponse:
    """GET says what it will touch; POST does it."""
    if verb not in _VERBS:
        raise Http404
    act = _act(visit, workflow_id, verb)
    if visit.request.method == "GET":
        return _ask(visit, act, Form(values={**_proposed(visit, act), **_given(visit.request.GET)}))
    form = Form(values=_given(visit.request.POST))
    body = _body(verb, form)
    # The execution that was shown is meant: neither a second click nor a later one of this id is.
    key, run_id = None, form.values.get("run_id")
    if run_id and verb in _OF_AN_EXECUTION:
        body["run_id"] = run_id
    elif run_id and verb == "reset":
        key = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{run_id} {body['step']}"))
    if form.faults:
        return _ask(visit, act, form, 422)
    try:
        answer = visit.cell.post(_target(workflow_id, verb, form), body, idempotency_key=key).document
    except Refused as refused:
        if refused.status in (403, 404) and refused.code != ErrorCode.CONFLICT:
            raise
        _blame(form, refused)
        return _ask(visit, act, form, refused.status)
    except CellAway as away:
        form.general.append(f"{away} Whether it was done is not known; the workflow’s page tells.")
        return _ask(visit, act, form, 503)
    _say(visit, act, form, answer)
    return redirect(visit.url("workflow", workflow_id))


def _act(visit: Visit, workflow_id: str, verb: str) -> _Act:
    found = visit.cell.get(path("workflows", workflow_id))
    steps = visit.cell.get(path("workflows", workflow_id, "timeline"), run_id=found["run_id"])["steps"]
    definition = definition_of(visit, found)
    act = _Act(verb=verb, found=found, definition=definition, standing=standing_of(found, steps, definition))
    if verb == "migrate":
        page = visit.cell.get("/v1/workflow-definitions", name=found["definition"], limit=LONGEST)
        act.versions = [row for row in page["items"] if row["version"] != found["version"]]
    return act


def _proposed(visit: Visit, act: _Act) -> dict[str, str]:
    """What the form begins with."""
    waits = act.standing.waits
    return {
        "name": waits[0] if waits else "",
        "signal_id": str(uuid.uuid4()),
        "version": str(act.versions[0]["version"]) if act.versions else "",
        "action": "retry",
        "run_id": str(act.found["run_id"]),
    }


def _given(fields: Any) -> dict[str, str]:
    return {name: fields[name].strip()[:300_000] for name in _FIELDS if name in fields}


def _body(verb: str, form: Form) -> dict[str, Any]:
    """The API's body of what was typed; what cannot even be sent is a fault."""
    value = form.values.get
    match verb:
        case "signal":
            return {"signal_id": value("signal_id", ""), "payload": read_json(form, "payload")}
        case "reset":
            return {"step": value("step", "")}
        case "migrate":
            text = value("version", "")
            return {"version": int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text}
        case "resolve":
            note = {"note": value("note", "")} if value("note") else {}
            return {"action": value("action", ""), **note}
    return {"reason": value("reason", "")} if value("reason") else {}


def read_json(form: Form, name: str) -> Any:
    """A field that holds JSON; null where it is empty. Faults are put at it."""
    text = form.values.get(name, "")
    if not text:
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError as fault:
        form.faults[name] = [f"is not JSON: {fault.msg}, line {fault.lineno}"]
    except (ValueError, RecursionError):
        form.faults[name] = ["is not JSON: it nests too deep, or holds too long a number"]
    return None


def _target(workflow_id: str, verb: str, form: Form) -> str:
    if verb == "signal":
        return path("workflows", workflow_id, "signals", form.values.get("name", "") or "-")
    return path("workflows", workflow_id, verb=verb)


def _blame(form: Form, refused: Refused) -> None:
    """The API's faults at the fields they are about; a version that does not fit, with its first event."""
    for fault in refused.faults:
        name = fault.place.strip("/").split("/")[0]
        if name in _FIELDS:
            form.faults.setdefault(name, []).append(fault.detail)
        elif not name and "signal" in fault.detail:
            form.faults.setdefault("name", []).append(fault.detail)
        else:
            form.general.append(f"{name} {fault.detail}".strip())
    if not refused.faults:
        form.general.append(refused.detail[:1].upper() + refused.detail[1:])


def _ask(visit: Visit, act: _Act, form: Form, status: int = 200) -> HttpResponse:
    title, button, danger = _VERBS[act.verb]
    part = visit.request.htmx and visit.request.method == "GET"  # type: ignore[attr-defined]
    return visit.page(
        "console/workflows/act_part.html" if part else "console/workflows/act.html",
        status=status,
        section="workflows",
        title=f"{title} {act.found['workflow_id']}",
        button=button,
        danger=danger,
        points=points_of(act.verb, act.standing, act.found),
        act=act,
        form=form,
        signals=[] if act.definition is None else awaited(act.definition),
        open=is_open(act.found["status"]),
    )


def _say(visit: Visit, act: _Act, form: Form, answer: Mapping[str, Any]) -> None:
    """What was done, with where to see it."""
    standing, name = act.standing, act.found["workflow_id"]
    history = (visit.url("workflow-history", name), "Its history")
    match act.verb:
        case "signal":
            _say_signal(visit, form, answer)
        case "cancel":
            undone = counted(len(standing.undone), "step")
            done(visit, "{} is asked to stop. {} will be undone.", name, undone.capitalize(), link=history)
        case "terminate":
            kept = counted(len(standing.done), "step")
            done(visit, "{} ends as it is. Done, and not undone: {}.", name, kept, link=history)
        case "reset":
            earlier = f"{visit.url('workflow', name)}?run={act.found['run_id']}"
            text = "{} goes on from {} in a new execution. This is it."
            done(visit, text, name, form.values["step"], link=(earlier, "The one before"))
        case "migrate":
            before = act.found["version"]
            done(visit, "{} went from version {} to {}.", name, before, answer["version"], link=history)
        case "resolve":
            text = "is closed as it is" if form.values["action"] == "close" else "tries again"
            done(visit, "{} {}.", name, text, link=history)


def _say_signal(visit: Visit, form: Form, answer: Mapping[str, Any]) -> None:
    name, id_ = form.values["name"], answer["signal_id"]
    if answer["status"] == "late":
        text = f"{name} came too late: it is recorded ({id_}), and changes nothing."
        messages.warning(visit.request, text)
    elif answer["status"] == "duplicate":
        messages.info(visit.request, f"{name} with the id {id_} was sent before. Nothing was changed.")
    else:
        done(visit, "{} is taken ({}).", name, id_)


# --- starting ------------------------------------------------------------------------------
_START_FIELDS = ("workflow_id", "definition", "version", "input")


@tenant_page(Scope.WORKFLOWS_WRITE, "GET", "POST")
def workflow_new(visit: Visit) -> HttpResponse:
    """GET shows the form, POST starts one or shows all that is wrong with it."""
    if visit.request.method == "GET":
        given = {name: visit.request.GET[name][:2000] for name in _START_FIELDS if name in visit.request.GET}
        base = given.get("definition", "")
        proposed = f"{base}-{uuid.uuid4().hex[:8]}" if base else ""
        return _start_form(visit, Form(values={"workflow_id": proposed, **given}))
    values = {name: visit.request.POST.get(name, "").strip() for name in _START_FIELDS}
    form = Form(values=values)
    body: dict[str, Any] = {"workflow_id": values["workflow_id"], "definition": values["definition"]}
    if text := values["version"]:
        body["version"] = int(text) if text.isascii() and text.isdecimal() and len(text) < 11 else text
    if values["input"]:
        body["input"] = read_json(form, "input")
    if form.faults:
        return _start_form(visit, form, 422)
    try:
        # The same start again is the same workflow: a second click, or a reload, starts nothing more.
        answer = visit.cell.post("/v1/workflows", body)
    except Refused as refused:
        if refused.status == 403:
            raise
        for fault in refused.faults:
            name = fault.place.strip("/").split("/")[0]
            place = form.faults.setdefault(name, []) if name in _START_FIELDS else form.general
            place.append(fault.detail)
        if refused.code == ErrorCode.WORKFLOW_ID_IN_USE:
            form.faults["workflow_id"] = ["another workflow is open under this id, by another start"]
        elif not refused.faults:
            form.general.append(refused.detail)
        return _start_form(visit, form, 409 if refused.status == 409 else 422)
    except CellAway as away:
        form.general.append(f"{away} Sending it again is safe: the same start is the same workflow.")
        return _start_form(visit, form, 503)
    found = answer.document
    if answer.status == 201:
        text = f"{found['workflow_id']} is started, under {found['definition']} {found['version']}."
        if before := found.get("previous"):
            word = STATUSES.get(before["status"], (before["status"],))[0].lower()
            text += f" Another workflow had this id before: it is {word}, and is among its executions."
        messages.success(visit.request, text)
    else:
        messages.info(visit.request, f"{found['workflow_id']} was started before, by this same start.")
    return redirect(visit.url("workflow", found["workflow_id"]))


def _start_form(visit: Visit, form: Form, status: int = 200) -> HttpResponse:
    context: dict[str, Any] = {"names": []}
    try:
        rows = visit.cell.get("/v1/workflow-definitions", limit=LONGEST)["items"]
        context["names"] = list(dict.fromkeys(row["name"] for row in rows))
    except CellAway:
        if status == 200:
            raise
    return visit.page("console/workflows/new.html", status=status, section="workflows", form=form, **context)
