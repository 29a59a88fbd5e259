"""What an act on a workflow will touch, in numbers and names. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cells.domain.workflow.definition import Definition, WaitForSignal
from cells.domain.workflow.keys import split_key
from controlplane.console.wording import counted

#: Names in a sentence; the rest is a number.
_NAMED = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Where an execution stands, as acts see it. Keys of steps, in their order."""

    done: Sequence[str]
    under_way: Sequence[str]  # runs and children
    waiting: Sequence[str]  # waits and timers
    waits: Sequence[str]  # names of the signals that are waited for
    undone: Sequence[str]  # done, or nobody knows; and with something that undoes them
    stays: Sequence[str]  # done, with nothing that undoes them
    left: Sequence[str]  # compensations that have not succeeded
    begun: Sequence[str]  # steps that can be gone back to


def standing_of(
    found: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], definition: Definition | None
) -> Standing:
    """From a timeline. Without the definition it is not known what can be undone."""
    own = {} if definition is None else {step.id: step for step in definition.walk()}
    forward = [step for step in steps if not step["compensates"]]
    done = [step["step"] for step in forward if step["state"] == "COMPLETED" and _works(step)]
    unknown = [step["step"] for step in forward if step["state"] == "FAILED" and not step["outcome_known"]]
    open_ = [step for step in forward if step["state"] == "OPEN"]
    undoes = {key for key in (*done, *unknown) if (s := own.get(split_key(key)[0])) and s.compensate_with}
    waits = [
        own[name].do
        for step in open_
        if step["kind"] == "wait" and (name := split_key(step["step"])[0]) in own
    ]
    return Standing(
        done=done,
        under_way=[step["step"] for step in open_ if _works(step)],
        waiting=[step["step"] for step in open_ if not _works(step)],
        waits=[do.name for do in waits if isinstance(do, WaitForSignal)],
        undone=[key for key in (*done, *unknown) if key in undoes],
        stays=[key for key in done if key not in undoes],
        left=[step["step"] for step in steps if step["compensates"] and step["state"] != "COMPLETED"],
        begun=[step["step"] for step in forward if step["kind"] != "skipped"],
    )


def _works(step: Mapping[str, Any]) -> bool:
    return step["kind"] in ("activity", "child")


def points_of(verb: str, standing: Standing, found: Mapping[str, Any]) -> list[str]:
    """Sentences of what an act will touch."""
    match verb:
        case "signal":
            if standing.waits:
                return [f"It waits for {listed(standing.waits)} now."]
            return ["No step waits for a signal now. One that comes before its wait is kept for it."]
        case "cancel":
            return [
                f"Undone: {_named(standing.undone)}, the latest first."
                if standing.undone
                else "Nothing that it did can be undone.",
                *(
                    [f"Stays done, for nothing undoes it: {_named(standing.stays)}."]
                    if standing.stays
                    else []
                ),
                _stopped(standing, "asked to stop, and waited for"),
            ]
        case "terminate":
            return [
                f"Stays done, and is not undone: {_named(standing.done)}."
                if standing.done
                else "No step is done yet.",
                _stopped(standing, "asked to stop, and not waited for"),
            ]
        case "reset":
            ends = "This execution ends, another" if found["closed_at"] is None else "Another execution"
            return [
                "The step you choose runs again, with all behind it. Nothing is undone before.",
                f"{ends} goes on with the history up to there, and its calls have keys of their own.",
            ]
        case "migrate":
            return [
                f"It goes on under another version; now it is {found['version']}.",
                "One that would have recorded something else is refused, with the first event that differs.",
            ]
        case "resolve":
            return [
                f"Not undone yet: {_named(standing.left)}."
                if standing.left
                else "Nothing is left to be undone.",
                "Trying again uses the same keys. Closing leaves it as it is; the note stays in the history.",
            ]
    return []


def _stopped(standing: Standing, what: str) -> str:
    parts = []
    if standing.under_way:
        parts.append(f"Under way: {_named(standing.under_way)}, {what}.")
    if standing.waiting:
        parts.append(f"Given up: the waiting of {listed(standing.waiting)}.")
    return " ".join(parts) or "Nothing is under way."


def _named(keys: Sequence[str]) -> str:
    return f"{counted(len(keys), 'step')} ({listed(keys)})"


def listed(names: Iterable[str]) -> str:
    """`a, b and 3 more`."""
    found = list(dict.fromkeys(names))
    shown, more = found[:_NAMED], len(found) - _NAMED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
