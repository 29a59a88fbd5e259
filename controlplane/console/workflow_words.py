"""How workflows are said: statuses, steps, events, and what a step of a definition does. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cells.domain.workflow.definition import (
    UNLIMITED,
    Activity,
    ContinueAsNew,
    Definition,
    Map,
    OnTimeout,
    Parallel,
    Sleep,
    StartWorkflow,
    Step,
    WaitForSignal,
)
from cells.domain.workflow.events import BYTE_LIMIT, EVENT_LIMIT, WARNING_SHARE
from cells.domain.workflow.execution import DEADLINE, OPEN, Status
from controlplane.console.wording import duration

#: status -> (word, look, sign). Looks differ in colour, signs in shape.
STATUSES: dict[str, tuple[str, str, str]] = {
    "RUNNING": ("Running", "live", "▶"),
    "COMPENSATING": ("Undoing", "wait", "↶"),
    "COMPENSATION_STUCK": ("Stuck while undoing", "bad", "!"),
    "COMPLETED": ("Completed", "good", "●"),
    "COMPENSATED": ("Failed, and undone", "wait", "↶"),
    "FAILED": ("Failed", "bad", "✕"),
    "CANCELLED": ("Cancelled, and undone", "mute", "—"),
    "TERMINATED": ("Terminated", "mute", "■"),
    "CONTINUED_AS_NEW": ("Went on as new", "mute", "→"),
}
#: state of a step -> (word, look, sign)
STEP_STATES: dict[str, tuple[str, str, str]] = {
    "OPEN": ("Under way", "live", "▶"),
    "WAITING": ("Waits", "wait", "◔"),
    "COMPLETED": ("Done", "good", "●"),
    "FAILED": ("Failed", "bad", "✕"),
    "UNKNOWN": ("Outcome unknown", "bad", "?"),
    "SKIPPED": ("Skipped", "mute", "○"),
    "GROUP": ("", "mute", ""),
    "ABANDONED": ("Ended with it", "mute", "—"),
    "ENDED": ("Ended with it", "mute", "—"),
}
KINDS: dict[str, str] = {
    "activity": "activity",
    "wait": "waits for a signal",
    "timer": "timer",
    "child": "child workflow",
    "group": "several at once",
    "skipped": "skipped",
    "failed": "could not begin",
}
#: What an event says.
EVENTS: dict[str, str] = {
    "STARTED": "it began",
    "STEP_SKIPPED": "its condition was false",
    "STEP_FAILED": "it could not begin",
    "ACTIVITY_SCHEDULED": "a run was made",
    "ACTIVITY_COMPLETED": "it was done",
    "ACTIVITY_FAILED": "it failed",
    "CANCEL_SENT": "it was asked to stop",
    "WAIT_STARTED": "it waits for a signal",
    "TIMER_STARTED": "it waits for a time",
    "TIMER_FIRED": "the time has come",
    "SIGNAL_RECEIVED": "a signal came",
    "PARALLEL_STARTED": "branches began",
    "MAP_STARTED": "elements began",
    "CHILD_STARTED": "a child began",
    "CHILD_COMPLETED": "the child was done",
    "CHILD_FAILED": "the child failed",
    "CANCEL_REQUESTED": "it was asked to stop",
    "COMPENSATION_STARTED": "undoing began",
    "COMPENSATION_STUCK": "undoing is stuck",
    "COMPENSATION_RESOLVED": "somebody decided about it",
    "MIGRATED": "it goes on under another version",
    "RESET": "it goes on from here in place of an earlier execution",
    "COMPLETED": "all steps were done",
    "FAILED": "it failed",
    "COMPENSATED": "all was undone",
    "CANCELLED": "it was cancelled, and all was undone",
    "TERMINATED": "it was ended as it was",
    "CONTINUED_AS_NEW": "it went on as new",
}
_ON_TIMEOUT = {
    OnTimeout.COMPENSATE: "then everything is undone",
    OnTimeout.FAIL: "then it fails",
    OnTimeout.CONTINUE: "then it goes on",
}


def is_open(status: str) -> bool:
    """Whether an execution can still change."""
    return status in {each.value for each in OPEN}


def status_words() -> list[tuple[str, str]]:
    """(status, word) of all, for a filter."""
    return [(each.value, STATUSES[each.value][0]) for each in Status]


def timer_name(step: str) -> str:
    """What a pending timer belongs to."""
    return "all must be undone by then" if step == DEADLINE else step


def history_share(workflow: Mapping[str, Any]) -> tuple[int, bool]:
    """How full a history is (percent of what it may hold), and whether people are to be warned."""
    share = max(workflow["events"] / EVENT_LIMIT, workflow["history_bytes"] / BYTE_LIMIT)
    return round(share * 100), share >= WARNING_SHARE


# --- definitions ---------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """A step in words, with those inside it."""

    step: str
    kind: str
    what: str
    when: str = ""
    undone_by: str = ""
    branches: tuple[tuple[Said, ...], ...] = ()


def kind_of(step: Step) -> str:
    """The kind of a step, as drawings look it up."""
    match step.do:
        case Activity():
            return "activity"
        case WaitForSignal():
            return "wait"
        case Sleep():
            return "timer"
        case StartWorkflow():
            return "child"
        case ContinueAsNew():
            return "again"
    return "group"


def what_it_does(step: Step) -> str:
    """What a step does, in a line."""
    match step.do:
        case Activity(task_queue=str() as queue) as do:
            return f"{do.type} on queue {queue}{_limits(do)}"
        case Activity() as do:
            return f"{do.method} {do.target_id}{do.path}{_limits(do)}"
        case WaitForSignal(name=name, timeout_ms=None):
            return f"waits for {name}, however long"
        case WaitForSignal(name=name, timeout_ms=timeout, on_timeout=then):
            return f"waits for {name}, {duration(timeout)} at most; {_ON_TIMEOUT[then]}"
        case Sleep(for_ms=None):
            return "sleeps until an instant that an expression gives"
        case Sleep(for_ms=length):
            return f"sleeps {duration(length)}"
        case Parallel(branches=branches):
            return f"{len(branches)} branches at once"
        case Map() as do:
            return f"for each {do.name} in {do.over.source}, {do.max_concurrency} at once"
        case StartWorkflow() as do:
            version = "the newest version" if do.version is None else f"version {do.version}"
            return f"starts {do.definition}, {version}{'' if do.wait else ', and does not wait'}"
        case ContinueAsNew():
            return "goes on as new, with an empty history"
    return ""


def _limits(do: Activity) -> str:
    attempts = "until it succeeds" if do.retry.max_attempts == UNLIMITED else f"{do.retry.max_attempts}×"
    return f", {attempts}, {duration(do.timeout_ms)} each"


def said(steps: tuple[Step, ...]) -> tuple[Said, ...]:
    """Steps in words."""
    return tuple(
        Said(
            step=step.id,
            kind=kind_of(step),
            what=what_it_does(step),
            when=step.when.source if step.when else "",
            undone_by=step.compensate_with or "",
            branches=tuple(said(branch) for branch in inside(step)),
        )
        for step in steps
    )


def inside(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The lists of steps inside a step."""
    if isinstance(step.do, Parallel):
        return step.do.branches
    return (step.do.steps,) if isinstance(step.do, Map) else ()


def depths(definition: Definition) -> dict[str, tuple[str, ...]]:
    """The steps around each step, by its id, the outermost first."""

    def walk(steps: tuple[Step, ...], around: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
        for step in steps:
            yield step.id, around
            for branch in inside(step):
                yield from walk(branch, (*around, step.id))

    return dict(walk(definition.steps, ()))


def awaited(definition: Definition) -> list[str]:
    """Names of the signals that some step waits for."""
    found = {step.do.name: None for step in definition.walk() if isinstance(step.do, WaitForSignal)}
    return list(found)
