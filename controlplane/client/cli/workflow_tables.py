"""How workflows and definitions look in a terminal. Pure: now is passed in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from controlplane.client.cli import tables
from controlplane.client.cli.wording import counted, duration, moment, style
from controlplane.client.workflow_documents import (
    CheckedRun,
    DefinitionChecked,
    Reconciliation,
    Timeline,
    TimelineStep,
    Workflow,
    WorkflowDefinition,
    WorkflowEvent,
)

_WIDTH = 40
_DEADLINE = "!deadline"
#: state -> how a step that has it is called.
_STATES = {"OPEN": "RUNNING", "GROUP": "", "ABANDONED": "ended with it"}
#: What a stretch of a step is drawn with: worked on, waited for, undone.
_RAN, _WAITED, _UNDID = "█", "░", "▒"


def workflows_table(found: Sequence[Workflow], now: datetime) -> RenderableType:
    """Executions, the latest start first."""
    if not found:
        return (
            "No workflows. `clockhouse definitions put <file>` registers what one does, "
            "`clockhouse workflows start <definition>` begins one."
        )
    made = tables.table("workflow", "status", "definition", "started", "ended", "events", right=("events",))
    for one in found:
        made.add_row(
            escape(one.workflow_id),
            tables.state(one.status),
            escape(f"{one.definition} {one.version}"),
            moment(one.started_at, now),
            moment(one.closed_at, now),
            str(one.events),
        )
    return made


def reconciliation_table(found: Sequence[Reconciliation], now: datetime) -> RenderableType:
    """Executions to compare, a line for each step in question."""
    if not found:
        return "Nothing to compare: none is stuck in undoing, and none undid what may not have happened."
    made = tables.table("workflow", "status", "step", "what is known", "key", "undone by", "its key")
    for one in found:
        first: tuple[str | Text, str | Text] = (escape(one.workflow_id), tables.state(one.status))
        for step in one.steps:
            known = "done" if step.outcome == "COMPLETED" else "unknown whether it happened"
            known += ", told late" if step.told_late else ""
            undo = step.compensation or "–"
            made.add_row(
                *first,
                escape(step.step),
                known,
                escape(step.idempotency_key or step.child_workflow_id or "–"),
                escape(f"{undo} {(step.compensation_state or '').lower()}".strip()),
                escape(step.compensation_idempotency_key or "–"),
            )
            first = ("", "")
        if not one.steps:
            made.add_row(*first, "–", escape(one.error or "–"), "–", "–", "–")
    return made


def workflow_card(one: Workflow, now: datetime) -> RenderableType:
    """One execution and where it stands."""
    timers = [f"{_timer(timer.step)} {moment(timer.fires_at, now)}" for timer in one.pending_timers]
    return tables.card(
        (
            ("workflow", one.workflow_id),
            ("status", tables.state(one.status)),
            ("definition", f"{one.definition} {one.version}"),
            ("execution", one.run_id),
            ("started", moment(one.started_at, now)),
            ("ended", moment(one.closed_at, now) if one.closed_at else None),
            ("error", one.error),
            ("current steps", ", ".join(one.current_steps)),
            ("timers", "\n".join(timers)),
            ("late signals", ", ".join(one.late_signals)),
            ("parent", (one.parent or {}).get("workflow_id")),
            ("region", one.home_region),
            ("regions", tables.regions(one.region_policy)),
            ("history", f"{counted(one.events, 'event')}, {one.history_bytes} bytes"),
            ("result", _result(one)),
        )
    )


def _timer(step: str) -> str:
    return "all undone by" if step == _DEADLINE else step


def _result(one: Workflow) -> str | None:
    if one.result_hidden:
        return "not shown: the key may not see payloads" if one.completed else None
    return None if one.result is None else json.dumps(one.result, ensure_ascii=False)


def timeline_table(found: Timeline, one: Workflow, now: datetime) -> RenderableType:
    """Each step on one scale from the workflow's start to its end, or to now."""
    if not found.steps:
        return "No step has begun."
    begin = one.started_at
    end = max([one.closed_at or now, *(step.ended_at or begin for step in found.steps)])
    made = tables.table("step", "state", "after", "took", "attempt", "", right=("after", "took", "attempt"))
    for step in found.steps:
        until = step.ended_at or (one.closed_at or now)
        word = _STATES.get(step.state, step.state)
        group = step.state == "GROUP"
        made.add_row(
            Text(_named(step), style="italic" if step.compensates else ""),
            Text(word.lower() + ("" if step.outcome_known else ", outcome unknown"), style=style(word)),
            duration((step.started_at - begin).total_seconds() * 1000),
            "" if group else duration((until - step.started_at).total_seconds() * 1000),
            str(step.run.attempt) if step.run else "",
            Text(
                "" if group else _bar(step, begin, end, until),
                style="magenta" if step.compensates else "cyan",
            ),
        )
    notes = [f"[red]{escape(step.step)}: {escape(step.error)}[/red]" for step in found.steps if step.error]
    key = f"[dim]{_RAN} under way, {_WAITED} waited, {_UNDID} undoing; the whole is "
    return Group(made, *notes, f"{key}{duration((end - begin).total_seconds() * 1000)}[/dim]")


def _named(step: TimelineStep) -> str:
    if step.compensates:
        return f"↶ {step.step} (undoes {step.compensates})"
    if step.child_workflow_id:
        return f"{step.step} → {step.child_workflow_id}"
    return step.step


def _bar(step: TimelineStep, begin: datetime, end: datetime, until: datetime) -> str:
    whole = max((end - begin).total_seconds(), 0.001)

    def cell(at: datetime) -> int:
        return min(_WIDTH - 1, max(0, int((at - begin).total_seconds() / whole * _WIDTH)))

    first, last = cell(step.started_at), cell(until)
    length = last - first + 1
    if step.kind in ("wait", "timer"):
        return " " * first + _WAITED * length
    waited = step.run.waited_ms if step.run else 0
    waiting = length if waited is None else min(length - 1, int(waited / 1000 / whole * _WIDTH))
    mark = _UNDID if step.compensates else _RAN
    return " " * first + _WAITED * waiting + mark * (length - waiting)


def history_table(events: Sequence[WorkflowEvent], now: datetime) -> RenderableType:
    """Events in their order."""
    if not events:
        return "No events behind that sequence."
    made = tables.table("seq", "at", "event", "step", "data", right=("seq",))
    for event in events:
        data = {name: value for name, value in event.data.items() if name != "step"}
        made.add_row(
            str(event.seq),
            f"{event.at:%Y-%m-%d %H:%M:%S.%f}"[:-3] + "Z",
            event.type,
            escape(str(event.data.get("step") or "")),
            escape(_cut(data)),
        )
    return made


def _cut(data: Mapping[str, Any], limit: int = 160) -> str:
    text = json.dumps(data, ensure_ascii=False) if data else ""
    return text if len(text) <= limit else text[: limit - 1] + "…"


#: Rows of a check that a terminal shows.
_CHECKED_SHOWN = 500


# --- definitions ---------------------------------------------------------------------------
def definitions_table(found: Sequence[WorkflowDefinition], now: datetime) -> RenderableType:
    """Versions by name, the newest first."""
    if not found:
        return "No definitions. `clockhouse definitions put <file>` registers a first one."
    made = tables.table("definition", "version", "registered", "by", right=("version",))
    for one in found:
        made.add_row(
            escape(one.name), str(one.version), moment(one.created_at, now), escape(one.created_by or "–")
        )
    return made


def definition_card(one: WorkflowDefinition, now: datetime) -> RenderableType:
    """A version with its text."""
    card = tables.card(
        (
            ("definition", one.name),
            ("version", one.version),
            ("registered", moment(one.created_at, now)),
            ("by", one.created_by),
            ("steps", ", ".join(one.steps)),
        )
    )
    return Group(card, "", Text(one.source or ""))


def checked_table(found: DefinitionChecked) -> RenderableType:
    """What a candidate would mean for open executions."""
    counts = f"{len(found.compatible)} compatible, {len(found.blocked)} blocked"
    if found.undecided:
        counts += f", {len(found.undecided)} undecided"
    said = f"{found.name} {found.version}: {counts}."
    rows = (*found.blocked, *found.undecided, *found.compatible)
    if not rows:
        return f"{said} No execution of it is open."
    made = tables.table("workflow", "version", "can go on", "first event that differs", right=("version",))
    for one in rows[:_CHECKED_SHOWN]:
        made.add_row(escape(one.workflow_id), str(one.version), *_verdict(one))
    left = len(rows) - _CHECKED_SHOWN
    return Group(said, "", made, *([f"… and {left} more; --json has them all."] if left > 0 else ()))


def _verdict(one: CheckedRun) -> tuple[Text, str]:
    event = one.first_diverging_event
    if one.reason is not None:
        return Text("unknown", style="yellow"), escape(one.reason)
    if event is None:
        return Text("yes", style="green"), ""
    where = f"{event.seq} {event.type} {event.step or ''}".strip()
    return Text("no", style="red"), escape(f"{where}; it would be: {event.expected}")
