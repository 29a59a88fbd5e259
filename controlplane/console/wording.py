"""How values are said: durations, counts, schedules, states. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cells.domain import ids
from cells.domain.job import QUEUE_LABEL, WORKFLOW_LABEL

#: state -> (word, look, sign). Looks differ in colour, signs in shape.
STATES: dict[str, tuple[str, str, str]] = {
    "SUCCEEDED": ("Succeeded", "good", "●"),
    "FAILED": ("Failed", "bad", "✕"),
    "UNKNOWN": ("Unknown", "bad", "?"),
    "RUNNING": ("Running", "live", "▶"),
    "READY": ("Waiting for a worker", "wait", "◔"),
    "DUE": ("Due", "wait", "◔"),
    "RETRY_WAIT": ("Will retry", "wait", "↻"),
    "CANCELLED": ("Cancelled", "mute", "—"),
    "SUCCEEDED_AFTER_CANCEL": ("Succeeded, after cancel", "good", "●"),
    "SKIPPED": ("Skipped", "mute", "○"),
    "SCHEDULED": ("Scheduled", "live", "◷"),
    "PAUSED": ("Paused", "wait", "‖"),
    "COMPLETED": ("Completed", "mute", "■"),
    "APPROVED": ("Approved", "good", "●"),
    "PENDING": ("Waits for approval", "wait", "◔"),
    "DISABLED": ("Disabled", "mute", "○"),
    "GONE": ("Gone (410)", "bad", "✕"),
    "NO_WORKER": ("No worker", "bad", "✕"),
    "IDLE": ("Idle", "mute", "○"),
    "OK": ("Working", "good", "●"),
    "RETRYABLE": ("Failed, retried", "wait", "↻"),
    "TERMINAL": ("Failed", "bad", "✕"),
    "LOST": ("Lost with its host", "wait", "?"),
}

#: Parts of a run's time, in their order: name in the document -> (word, what it means).
PARTS: dict[str, tuple[str, str]] = {
    "window": ("Window", "spread on purpose, inside the dispatch window"),
    "retries": ("Retries", "earlier attempts and the waits between them"),
    "dead_letter": ("Dead letter", "lay among the dead letters until it was redriven"),
    "quota": ("Quota", "waited for a quota: of runs per second, or of running runs"),
    "queue": ("Queue", "waited for an executor or a worker"),
    "slot": ("Slot", "waited for a slot at the target"),
    "run": ("Call", "the call itself"),
}

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def parse(instant: str | None) -> datetime | None:
    """An instant as cells write it."""
    if not instant:
        return None
    try:
        at = datetime.fromisoformat(instant)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def instant(at: datetime) -> str:
    """An instant as cells read it."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def duration(ms: float | None) -> str:
    """`0 ms`, `340 ms`, `2.4 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if ms is None:
        return "–"
    if ms < 1000:
        return f"{round(ms)} ms"
    seconds = ms / 1000
    if seconds < 59.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    for size, name, smaller, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {name} {rest} {small}" if rest else f"{whole // size} {name}"
    return f"{whole} s"


def readable(body: str | None) -> str | None:
    """A body with line breaks, if it is JSON; anything else as it came."""
    try:
        return json.dumps(json.loads(body or ""), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return body


#: What becomes of an occurrence on a day that its calendar excludes.
ROLLS = (
    ("SKIP", "does not run"),
    ("NEXT", "moves to the next open day"),
    ("PREVIOUS", "moves to the open day before"),
)
#: What an occurrence does while the one before it has not ended.
OVERLAPS = (
    ("ALLOW", "runs beside it"),
    ("SKIP", "does not run"),
    ("BUFFER_ONE", "waits for its end; only one does"),
    ("CANCEL_PREVIOUS", "runs, and asks it to stop"),
)
#: Why an occurrence deliberately did not run.
SKIPPED = {
    "misfire": "it was missed, and the misfire policy does not catch up with it",
    "dst_gap": "its local time did not exist on that day",
    "calendar": "the job's calendar excludes the day",
    "overlap": "the one before had not ended",
    "paused": "the job was paused",
    "edited": "the schedule was changed before the run began",
    "cancelled": "the job was cancelled before the run began",
}


def run_reason(run: Mapping[str, Any]) -> str:
    """Why a run is as it is, in words; empty if nothing is to be said."""
    reason = str(run.get("reason") or "")
    if run.get("state") == "SKIPPED":
        return SKIPPED.get(reason, reason)
    if run.get("state") == "DUE" and reason == "overlap":
        return "it waits for the one before it to end"
    return reason


def relative(at: datetime, now: datetime) -> str:
    """`in 3 min`, `12 s ago`, `just now`."""
    gap = at - now
    if abs(gap) < timedelta(seconds=1):
        return "just now"
    seconds = abs(gap.total_seconds())
    size, name = next(unit for unit in _UNITS if seconds >= unit[0])
    said = f"{int(seconds // size)} {name}"
    return f"in {said}" if gap > timedelta(0) else f"{said} ago"


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


#: Tasks of a queue are counted up to here.
TASKS_COUNTED = 10_000


def limited(tasks: int) -> str:
    """`1 task`, `10,000+ tasks`: a number of tasks that a cell counted to its limit."""
    return f"{tasks:,}+ tasks" if tasks >= TASKS_COUNTED else counted(tasks, "task")


def readable_value(value: object, *, limit: int) -> str | None:
    """A small JSON value in one line, cut at so many characters; None for nothing."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def schedule(document: Mapping[str, Any]) -> tuple[str, str]:
    """A schedule in words: (what, where)."""
    kind = document.get("type")
    zone = str(document.get("time_zone") or "UTC")
    if kind == "CRON":
        return str(document.get("cron", "")), zone
    if kind == "RATE":
        return f"every {duration(1000 * int(document.get('every_seconds') or 0))}", "elapsed time"
    if kind == "ONCE":
        return f"once, {str(document.get('run_at', '')).replace('T', ' ')}", zone
    return "at once", ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One part of a run's time; place and share in percent of all parts but the window."""

    name: str
    word: str
    meaning: str
    ms: int
    x: float
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeSplit:
    """Where a run's time went. The window is apart: it is long on purpose, and would hide the rest."""

    window_ms: int
    total_ms: int  # of the parts
    parts: tuple[Part, ...]


def time_split(document: Mapping[str, Any] | None) -> TimeSplit:
    """A run's `where_the_time_went`; parts that took no time are left out."""
    measured = {name: int((document or {}).get(f"{name}_ms") or 0) for name in PARTS}
    window = measured.pop("window")
    whole = sum(measured.values())
    parts = []
    before = 0
    for name, ms in measured.items():
        if ms > 0:
            word, meaning = PARTS[name]
            x, share = round(before / whole * 100, 3), round(ms / whole * 100, 3)
            parts.append(Part(name=name, word=word, meaning=meaning, ms=ms, x=x, share=share))
            before += ms
    return TimeSplit(window_ms=window, total_ms=whole, parts=tuple(parts))


def main_delay(split: Mapping[str, Any] | None) -> str:
    """What a run waited for most; empty if it did not wait."""
    waits = {name: int((split or {}).get(f"{name}_ms") or 0) for name in PARTS if name != "run"}
    name = max(waits, key=lambda each: waits[each])
    return name if waits[name] > 0 else ""


#: What a run of a workflow is called, which has no job.
STEP = "Workflow step"


def of_workflow(job_id: str) -> bool:
    """Whether what a run names as its job is the execution of a workflow whose step it is."""
    return job_id.startswith(f"{ids.WORKFLOW_RUN}_")


def target_page(label: str) -> tuple[str, str]:
    """The page that shows what a target's label means, and its argument: `queue:<name>` and
    `workflow:<definition>` are no targets."""
    if label.startswith(WORKFLOW_LABEL):
        return "definition", label.removeprefix(WORKFLOW_LABEL)
    return ("queue", label.removeprefix(QUEUE_LABEL)) if label.startswith(QUEUE_LABEL) else ("target", label)


def is_called(target: Mapping[str, Any]) -> bool:
    """Whether a job's runs are calls of a target: not tasks that workers fetch, nor workflows."""
    return "target_id" in target


def target_label(target: Mapping[str, Any]) -> str:
    """What a job's target is called where targets are listed: its id, `queue:<name>` or
    `workflow:<definition>`."""
    if "definition" in target:
        return f"{WORKFLOW_LABEL}{target['definition']}"
    return f"{QUEUE_LABEL}{target['task_queue']}" if "task_queue" in target else str(target["target_id"])


def target_text(target: Mapping[str, Any]) -> str:
    """Where a job's runs go, in one line."""
    if "definition" in target:
        version = "the newest version" if target["version"] is None else f"version {target['version']}"
        return f"workflow {target['definition']}, {version}"
    if "task_queue" in target:
        return f"task queue {target['task_queue']}"
    return f"{target['method']} {target['target_id']}{target['path']}"
