"""Events of a cell in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.console.wording import counted

_JOBS = {
    "job.created": "was created",
    "job.edited": "was edited",
    "job.revived": "was declared again, and is scheduled",
    "job.paused": "was paused",
    "job.resumed": "was resumed",
    "job.completed": "has had its last occurrence",
    "job.cancelled": "was cancelled",
}
_TARGETS = {
    "target.created": ("wait", "was registered, and waits for approval"),
    "target.edited": ("mute", "was edited"),
    "target.pending": ("wait", "waits for a new approval"),
    "target.approved": ("good", "was approved"),
    "target.disabled": ("wait", "was disabled: runs that call it fail"),
    "target.gone": ("bad", "answered 410 Gone, and is not called any more"),
    "target.deleted": ("mute", "was deleted"),
    "target.broken": ("bad", "fails, and is not called until a probe succeeds"),
    "target.recovered": ("good", "works again"),
    "target.tested": ("mute", "was called once, to try it"),
    "target.secret_rotated": ("mute", "has a new secret"),
}
_QUEUES = {
    "task_queue.paused": ("wait", "was paused: nothing of it is handed out"),
    "task_queue.resumed": ("mute", "hands out tasks again"),
    "task_queue.no_worker": ("bad", "has tasks that wait, and nobody polls it"),
    "task_queue.recovered": ("good", "is polled again"),
}
_SILENT = {
    "HOLDING": (
        "bad",
        "fell silent together, which is mostly no fault of theirs: {} left to them until they speak again",
    ),
    "RECOVERING": ("wait", "are still silent: {} taken back, the oldest first"),
    "FLOWING": ("good", "are heard again, all but {}"),
}
_OPERATIONS = {
    "operation.started": ("live", "began"),
    "operation.ended": ("good", "is done"),
    "operation.stopped": ("wait", "was stopped"),
}
_BACKFILLS = {
    "backfill.started": ("live", "began"),
    "backfill.ended": ("good", "is done"),
    "backfill.stopped": ("wait", "was stopped"),
}
_WORKFLOWS = {
    "workflow.failed": ("bad", "failed"),
    "workflow.compensated": ("wait", "failed, and what it had done was undone"),
    "workflow.compensation_stuck": ("bad", "could not undo what it had done, and waits for somebody"),
    "workflow.migrated": ("mute", "goes on with another version of its definition"),
    "workflow.reset": ("mute", "was set back to an earlier step"),
    "workflow.history_near_limit": ("wait", "has a history that is nearly full"),
    "workflow.put_off": ("bad", "could not be decided, and is tried again later"),
    "workflow.cancel": ("wait", "was asked to end"),
    "workflow.terminate": ("wait", "was ended at once"),
    "workflow.resolve": ("mute", "was told how to go on"),
}
#: Operations over dead letters.
_OF_LETTERS = {"redrive": "Redriving", "purge": "Purging"}
_ACTIONS = {"pause": "Pausing", "resume": "Resuming", "cancel": "Cancelling"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Happening:
    """An event: what it is about (with the page that shows it), and what happened."""

    at: str
    look: str  # good, bad, wait, live, mute
    about: str
    what: str
    page: str  # the name of a page, or empty
    key: str  # its argument
    actor: str  # who decided it; empty where nobody did


def happening(event: Mapping[str, Any], people: Mapping[str, str]) -> Happening:
    """An event in words. `people`: what actors are called. What is not known is said as it came."""
    kind, subject, data = str(event["type"]), str(event["subject"]), event.get("data") or {}
    look, about, what, page, key = _said(kind, subject, data)
    return Happening(
        at=event["at"], look=look, about=about, what=what, page=page, key=key,
        actor=_named(event.get("actor"), people),
    )  # fmt: skip


def _said(kind: str, subject: str, data: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    count = int(data.get("count") or 1)
    if kind in _JOBS:
        if count > 1:
            return "mute", f"{count:,} jobs".replace(",", "\u202f"), "were created", "jobs", ""
        look = "wait" if kind in ("job.paused", "job.cancelled") else "mute"
        return look, str(data.get("name") or subject), _JOBS[kind], "job", subject
    if kind == "run.dead_lettered":
        how = f"HTTP {data['http_status']}" if data.get("http_status") else data.get("error") or "no answer"
        what = f"failed for good at {data.get('target_id') or 'its target'}: {how}"
        if count > 1:
            return "bad", counted(count, "run"), what, "dlq", str(data.get("fingerprint") or "")
        return "bad", "A run", what, "run", subject
    if kind in _TARGETS:
        look, what = _TARGETS[kind]
        return look, subject, what, "" if kind == "target.deleted" else "target", subject
    if kind in _QUEUES:
        look, what = _QUEUES[kind]
        return look, subject, what, "queue", subject
    if kind == "task_queue.workers_silent" and data.get("mode") in _SILENT:
        look, what = _SILENT[data["mode"]]
        tasks = counted(count, "task")
        is_are = "is" if count == 1 else "are"
        said = what.format(tasks if data["mode"] == "FLOWING" else f"{tasks} {is_are}")
        return look, f"Workers of {subject}", said, "queue", subject
    if kind in _OPERATIONS:
        look, what = _OPERATIONS[kind]
        total = int(data.get("total") or 0)
        if data.get("action") in _OF_LETTERS:
            return (
                look,
                f"{_OF_LETTERS[data['action']]} {counted(total, 'dead letter')}",
                what,
                "redrive",
                subject,
            )
        action = _ACTIONS.get(str(data.get("action")), "Changing")
        about = f"{action} {counted(total, 'job')}"
        return look, about, what, "operation", subject
    if kind in _BACKFILLS:
        look, what = _BACKFILLS[kind]
        about = f"A backfill of {counted(int(data.get('total') or 0), 'occurrence')}"
        return look, about, what, "backfill", str(data.get("backfill_id") or "")
    if kind in _WORKFLOWS:
        look, what = _WORKFLOWS[kind]
        return look, f"Workflow {subject}", what, "", ""
    if kind == "run.redriven":
        return "mute", "A run", "that had failed for good begins anew", "run", subject
    if kind == "windows.lengthened":
        later = f"start up to {counted(int(data.get('extra_seconds') or 0), 'second')} later"
        jobs = counted(int(data.get("jobs") or 0), "LOW job")
        return "wait", jobs, f"of {subject} to {data.get('until')} {later}", "", ""
    if kind == "region.returned":
        look = "wait" if data.get("not_applied") else "good"
        runs = counted(int(data.get("effects") or 0), "act")
        decisions = counted(int(data.get("intents") or 0), "decision")
        open_ = int(data.get("not_applied") or 0)
        what = f"came back with {runs} of runs and {decisions}" + (
            f", {open_} not done again" if open_ else ""
        )
        return look, f"Region {subject}", what, "returned", ""
    if kind == "dispatch.late":
        slo = counted(int(data.get("slo_seconds") or 0), "second")
        return "bad", "Occurrences", f"wait for longer than {slo}", "jobs", ""
    if kind == "dispatch.recovered":
        return "good", "Occurrences", "start on time again", "jobs", ""
    if kind == "budget.spent":
        return "wait", "The budget", "is spent: LOW work waits until the month ends or it is changed", "", ""
    if kind == "quota.reached":
        quota = str(data.get("quota") or "a quota").replace("_", " ")
        if data.get("quota") == "running_runs":
            return (
                "wait",
                quota.capitalize(),
                "are as many as the quota allows: others wait for their end",
                "limits",
                "",
            )
        return "bad", quota.capitalize(), "has reached its limit: requests are refused", "limits", ""
    return "mute", subject, kind.replace(".", " ").replace("_", " "), "", ""


def _named(actor: object, people: Mapping[str, str]) -> str:
    if not actor:
        return ""
    text = str(actor)
    if text in people:
        return people[text]
    kind, _, name = text.partition(":")
    return {"key": f"API key {name}", "operator": "an operator", "user": "somebody who left"}.get(kind, text)
