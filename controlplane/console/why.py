"""“Why did it not run?”: what stands in a job's way now, and what became of one occurrence. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from controlplane.console.wording import counted, instant, parse

#: Why occurrences were passed over: reason in the ledger -> what happened.
PASSED_OVER: dict[str, str] = {
    "paused": "the job was paused at that time",
    "edited": "the job's schedule was changed before the run could begin",
    "cancelled": "the job was cancelled before the run could begin",
    "misfire": "it was found late, and the job's misfire policy let only the latest occurrence run",
    "dst_gap": "the clock jumped over that time, and the job's schedule skips such times",
}
#: One row stands for all occurrences that were passed over together; they are found this far on.
LOOK_BACK = timedelta(days=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A sentence with its look, and where to go from there."""

    look: str  # good, bad, wait, live, mute
    text: str
    run_id: str | None = None
    at: str | None = None  # an instant to show behind the text


def obstacles(job: Mapping[str, Any], target: Mapping[str, Any] | None, *, suspended: bool) -> list[Finding]:
    """What keeps a job from running from now on."""
    found = []
    status = job["status"]
    if suspended:
        found.append(Finding(look="bad", text="The workspace is suspended: nothing starts."))
    if status == "PAUSED":
        found.append(
            Finding(look="wait", text="The job is paused: occurrences go by, and are recorded as skipped.")
        )
    if status == "CANCELLED":
        found.append(Finding(look="mute", text="The job is cancelled. It never runs again; duplicate it instead."))
    if status == "COMPLETED":
        found.append(Finding(look="mute", text="The job has had its last occurrence."))
    name = job["target"]["target_id"]
    if target is None:
        found.append(Finding(look="bad", text=f"Its target {name} does not exist any more: runs fail."))
    elif target["state"] != "APPROVED":
        word = {"PENDING": "waits for approval", "DISABLED": "is disabled", "GONE": "answered 410 Gone"}
        said = word.get(target["state"], target["state"].lower())
        found.append(Finding(look="bad", text=f"Its target {name} {said}: runs fail."))
    return found


def verdict(
    job: Mapping[str, Any],
    at: datetime,
    *,
    now: datetime,
    runs: Sequence[Mapping[str, Any]],
    occurrences: Sequence[Mapping[str, Any]],
    tolerance: timedelta,
) -> list[Finding]:
    """What became of the occurrence at (about) an instant.

    `runs`: those scheduled from `LOOK_BACK` before it. `occurrences`: of the schedule as it is now, from
    `tolerance` before the instant on.
    """
    near = [run for run in runs if _close(run["scheduled_for"], at, tolerance)]
    if near:
        return [_of_run(run) for run in sorted(near, key=lambda run: str(run["scheduled_for"]))]
    covering = _covering(runs, at)
    if covering is not None:
        return [covering]
    created, changed = parse(job["created_at"]), parse(job["updated_at"])
    if created and at < created:
        return [Finding(look="mute", text="The job did not exist yet. It was created", at=job["created_at"])]
    due = [item for item in occurrences if _close(item["at"], at, tolerance)]
    if at > now:
        if not due:
            return [_no_occurrence(occurrences, at)]
        waits = job["status"] == "SCHEDULED"
        text = "It is still to come, for" if waits else "It would be due, were the job not paused or over, at"
        return [Finding(look="live" if waits else "wait", text=text, at=due[0]["at"])]
    if not due:
        return [_no_occurrence(occurrences, at)]
    planned = parse(job["next_run_at"])
    if planned and planned <= at:
        return [Finding(look="wait", text="It is due and waits to start; its window began", at=due[0]["at"])]
    if changed and at < changed:
        text = (
            "The schedule of today has an occurrence then, but there is no record of it: the job was "
            "changed afterwards, and had another schedule or was paused. It was changed"
        )
        return [Finding(look="mute", text=text, at=job["updated_at"])]
    text = "There is an occurrence, but no record of a run yet. It was due"
    return [Finding(look="wait", text=text, at=due[0]["at"])]


def _close(text: str | None, at: datetime, tolerance: timedelta) -> bool:
    found = parse(text)
    return found is not None and at - tolerance <= found <= at + tolerance


def _of_run(run: Mapping[str, Any]) -> Finding:
    state, when = run["state"], run["scheduled_for"]
    reason = run.get("reason") or ""
    made = {
        "SUCCEEDED": ("good", "It ran, and succeeded. It was for"),
        "SUCCEEDED_AFTER_CANCEL": ("good", "It was cancelled while under way, and succeeded all the same. It was for"),
        "FAILED": ("bad", f"It ran, and failed: {reason or 'no reason is recorded'}. It was for"),
        "UNKNOWN": ("bad", "It ran, and its outcome is not known. It was for"),
        "CANCELLED": ("mute", "Its run was cancelled. It was for"),
        "RUNNING": ("live", "It is running right now. It was for"),
        "RETRY_WAIT": ("wait", "It failed so far, and will be tried again. It was for"),
        "SKIPPED": ("mute", f"It was skipped: {PASSED_OVER.get(reason, reason or 'no reason is recorded')}. It was for"),
    }
    look, text = made.get(state, ("wait", "It is due and waits to start. It was for"))
    return Finding(look=look, text=text, run_id=run["run_id"], at=when)


def _covering(runs: Sequence[Mapping[str, Any]], at: datetime) -> Finding | None:
    """A row that stands for several skipped occurrences, up to the next run."""
    before = [run for run in runs if (found := parse(run["scheduled_for"])) and found <= at]
    last = max(before, key=lambda run: str(run["scheduled_for"]), default=None)
    if last is None or last["state"] != "SKIPPED" or int(last.get("skipped") or 0) < 2:
        return None
    why = PASSED_OVER.get(last.get("reason") or "", last.get("reason") or "no reason is recorded")
    number = counted(int(last["skipped"]), "occurrence")
    text = f"It was skipped, together with others ({number} in all): {why}. The first of them was"
    return Finding(look="mute", text=text, run_id=last["run_id"], at=last["scheduled_for"])


def _no_occurrence(occurrences: Sequence[Mapping[str, Any]], at: datetime) -> Finding:
    later = next((item["at"] for item in occurrences if (parse(item["at"]) or at) > at), None)
    if later is None:
        return Finding(look="mute", text="Its schedule, as it is now, has no occurrence at or after that time.")
    return Finding(look="mute", text="Its schedule, as it is now, has no occurrence then. The next one after it is", at=later)


def after(at: datetime, tolerance: timedelta) -> str:
    """Where to begin looking for occurrences."""
    return instant(at - tolerance - timedelta(seconds=1))
