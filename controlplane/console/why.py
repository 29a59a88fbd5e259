"""“Why did it not run?”: what stands in a job's way now, and what became of one occurrence. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from controlplane.console.wording import counted, instant, is_called, parse


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
        found.append(Finding(look="wait", text=_paused(job["schedule"]["type"])))
    if status == "CANCELLED":
        found.append(
            Finding(look="mute", text="The job is cancelled. It never runs again; duplicate it instead.")
        )
    if status == "COMPLETED":
        found.append(Finding(look="mute", text="The job has had its last occurrence."))
    if not is_called(job["target"]):
        return found
    name = job["target"]["target_id"]
    if target is None:
        found.append(Finding(look="bad", text=f"Its target {name} does not exist any more: runs fail."))
    elif target["state"] != "APPROVED":
        word = {"PENDING": "waits for approval", "DISABLED": "is disabled", "GONE": "answered 410 Gone"}
        said = word.get(target["state"], target["state"].lower())
        found.append(Finding(look="bad", text=f"Its target {name} {said}: runs fail."))
    return found


def _paused(kind: str) -> str:
    if kind in ("ONCE", "NOW"):
        return "The job is paused. Resumed, it runs at the time it had, or at once if that went by."
    return (
        "The job is paused: occurrences go by, and are recorded as skipped. Resuming plans the next one "
        "after now."
    )


def verdict(
    job: Mapping[str, Any],
    at: datetime,
    *,
    now: datetime,
    ledger: Sequence[Mapping[str, Any]],
    occurrences: Sequence[Mapping[str, Any]],
    tolerance: timedelta,
) -> list[Finding]:
    """What became of the occurrence at (about) an instant.

    `ledger`: the job's records up to then, newest first. `occurrences`: of the schedule as it is now, from
    `tolerance` before the instant on.
    """
    near = [item for item in ledger if _close(item["scheduled_for"], at, tolerance)]
    if near:
        return [_recorded(item) for item in reversed(near)]
    before = next((item for item in ledger if (parse(item["scheduled_for"]) or now) <= at), None)
    if before is not None and int(before["count"]) > 1:
        return [_recorded(before)]
    created, changed = parse(job["created_at"]), parse(job["updated_at"])
    if created and at < created:
        return [Finding(look="mute", text="The job did not exist yet. It was created", at=job["created_at"])]
    due = [item for item in occurrences if _close(item["at"], at, tolerance)]
    if not due:
        return [_no_occurrence(occurrences, at)]
    if at > now:
        waits = job["status"] == "SCHEDULED"
        text = "It is still to come, for" if waits else "It would be due, were the job not paused or over, at"
        return [Finding(look="live" if waits else "wait", text=text, at=due[0]["at"])]
    if changed and at < changed:
        text = (
            "The schedule of today has an occurrence then, but there is no record of it: the job was "
            "changed afterwards, and had another schedule at that time. It was changed"
        )
        return [Finding(look="mute", text=text, at=job["updated_at"])]
    return [Finding(look="wait", text="There is no record of it yet. It was due", at=due[0]["at"])]


def _close(text: str | None, at: datetime, tolerance: timedelta) -> bool:
    found = parse(text)
    return found is not None and at - tolerance <= found <= at + tolerance


#: How verdicts of the ledger look; those not named here are nobody's fault.
LOOKS = {
    "ran": "good",
    "failed": "bad",
    "unknown": "bad",
    "running": "live",
    "due": "live",
    "retrying": "wait",
    "waiting": "wait",
    "late": "wait",
}


def _recorded(item: Mapping[str, Any]) -> Finding:
    count = int(item["count"])
    together = f" This record stands for {counted(count, 'occurrence')}." if count > 1 else ""
    first = "The first of them was for" if count > 1 else "It was for"
    return Finding(
        look=LOOKS.get(item["verdict"], "mute"),
        text=f"{item['sentence']}{together} {first}",
        run_id=item["run_id"],
        at=item["scheduled_for"],
    )


def _no_occurrence(occurrences: Sequence[Mapping[str, Any]], at: datetime) -> Finding:
    later = next((item["at"] for item in occurrences if (parse(item["at"]) or at) > at), None)
    if later is None:
        return Finding(
            look="mute", text="Its schedule, as it is now, has no occurrence at or after that time"
        )
    text = "Its schedule, as it is now, has no occurrence then. The next one after it is"
    return Finding(look="mute", text=text, at=later)


def after(at: datetime, tolerance: timedelta) -> str:
    """Where to begin looking for occurrences."""
    return instant(at - tolerance - timedelta(seconds=1))
