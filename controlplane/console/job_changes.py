"""A job as form fields again, and what an edited form changes. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from controlplane.console.job_form import CALLBACKS, DEFAULTS, FIELDS, JobForm
from controlplane.console.wording import parse

_UNITS = (86400, 3600, 60, 1)
_TARGET = ("target_id", "method", "path", "timeout_seconds", "task_queue", "lease_seconds", "definition")
#: A value that no document holds.
_ABSENT: Any = object()


def fields_of(job: Mapping[str, Any]) -> dict[str, str]:
    """The form's fields, filled from a job document. A hidden payload is an empty field."""
    schedule, target, retry = job["schedule"], job["target"], job["retry_policy"]
    found: dict[str, Any] = {
        **DEFAULTS,
        **{
            name: job.get(name)
            for name in ("name", "key", "priority", "misfire_policy", "overlap_policy", "region_policy")
        },
        **{name: job.get(name) for name in ("misfire_grace_seconds", "concurrency_key", "max_concurrent")},
        "delivery": job.get("delivery") or DEFAULTS["delivery"],
        "kind": schedule["type"],
        "tags": ", ".join(job.get("tags") or ()),
        "headers": "\n".join(f"{name}: {value}" for name, value in (job.get("headers") or {}).items()),
        "payload": "" if job.get("payload") is None else _pretty(job["payload"]),
        "dispatch_window_seconds": job.get("dispatch_window_seconds"),
        "target_kind": target["type"],
        "definition_version": target.get("version"),
        "wait": "no" if target.get("wait") is False else "yes",
        **{name: target[name] for name in _TARGET if name in target},
        **{name: _plain(retry[name]) for name in retry if name in FIELDS},
        "time_zone": schedule.get("time_zone") or "UTC",
    }
    if schedule["type"] == "CRON":
        found |= {name: schedule.get(name) for name in ("cron", "calendar")}
        found |= {"dialect": schedule.get("dialect") or "UNIX", "roll": schedule.get("roll") or "SKIP"}
    if schedule["type"] == "RATE":
        size = next(unit for unit in _UNITS if schedule["every_seconds"] % unit == 0)
        found |= {"every": schedule["every_seconds"] // size, "every_unit": size}
    if schedule["type"] == "ONCE":
        found["run_at"] = _wall(schedule["run_at"], found["time_zone"])
    for name in CALLBACKS:
        if told := job.get(name):
            found |= {name: told["target_id"], f"{name}_path": told.get("path")}
    for name in ("start_at", "end_at"):
        found[name] = _wall(schedule.get(name) or "", "UTC")
    if dst := schedule.get("dst"):
        found |= {"dst_gap": dst["gap"], "dst_overlap": dst["overlap"]}
    return {name: str(found[name]) for name in FIELDS if found.get(name) not in (None, "")}


def _wall(instant: str, zone: str) -> str:
    """An instant as the clock in a zone shows it; a wall time stays as it is."""
    if not instant.endswith("Z") and "+" not in instant:
        return instant
    at = parse(instant)
    return "" if at is None else f"{at.astimezone(ZoneInfo(zone)):%Y-%m-%dT%H:%M:%S}"


def _plain(number: float) -> str:
    return f"{number:g}"


def _pretty(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One field that an edit changes: as it is saved, and as it was typed."""

    name: str
    saved: str
    typed: str


def changes(saved: JobForm, typed: JobForm) -> list[Change]:
    """What differs, in the form's order. Fields that belong to another kind of schedule do not count."""
    before, after = _said(saved), _said(typed)
    return [
        Change(name=name, saved=before.get(name, ""), typed=after.get(name, ""))
        for name in FIELDS
        if before.get(name, "") != after.get(name, "")
    ]


def _said(form: JobForm) -> dict[str, str]:
    """Each field that counts, in one way of writing it."""
    body = form.body()
    flat: dict[str, Any] = {**body, **body["target"], **body["retry_policy"], **body["schedule"]}
    flat |= {"kind": body["schedule"]["type"], "target_kind": body["target"]["type"]}
    flat["definition_version"] = body["target"].get("version")
    flat["wait"] = {True: "yes", False: "no"}.get(body["target"].get("wait"))
    flat["every"] = flat.pop("every_seconds", None)
    flat |= {f"dst_{name}": value for name, value in (flat.pop("dst", None) or {}).items()}
    flat["payload"] = _pretty(msgspec.json.decode(body["payload"])) if body.get("payload") else None
    flat["headers"] = "\n".join(f"{name}: {value}" for name, value in body.get("headers", {}).items())
    flat["tags"] = ", ".join(body.get("tags", ()))
    for name in CALLBACKS:
        if told := body.get(name):
            flat |= {name: told["target_id"], f"{name}_path": told.get("path")}
    return {name: str(flat[name]) for name in FIELDS if flat.get(name) not in (None, "")}


def patch_of(saved: JobForm, typed: JobForm, *, payload_hidden: bool) -> dict[str, Any]:
    """The merge patch (RFC 7396) that turns the saved job into what was typed.

    A fault is put at `typed` where a merge patch cannot say it. An empty payload field of a member who
    may not see the payload means: as it is.
    """
    before, after = saved.body(), typed.body()
    payloads = before.pop("payload", None), after.pop("payload", None)
    patch = merge_patch(before, after)
    if "schedule" in patch and before["schedule"]["type"] != after["schedule"]["type"]:
        patch["schedule"] = after["schedule"]
    if "target" in patch and before["target"]["type"] != after["target"]["type"]:
        patch["target"] = after["target"]
    if payloads[1] is None and (payload_hidden or payloads[0] is None):
        return patch
    old, new = (_ABSENT if raw is None else json.loads(bytes(raw)) for raw in payloads)
    if new is _ABSENT:
        patch["payload"] = None
    elif payload_hidden and isinstance(new, dict):
        typed.faults.setdefault("payload", []).append(
            "cannot be replaced by somebody who may not see the old one; duplicate the job instead"
        )
    elif old is _ABSENT or old != new:
        try:
            difference = merge_patch(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
            _check_no_null(difference, old)
        except ValueError as unsaid:
            typed.faults.setdefault("payload", []).append(str(unsaid))
        else:
            # A large number keeps its digits.
            patch["payload"] = msgspec.Raw(json.dumps(difference).encode())
    return patch


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What is to be merged into `before` to get `after`; null takes a member away."""
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name, _ABSENT)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            if below := merge_patch(old, value):
                patch[name] = below
        elif old is _ABSENT or old != value or isinstance(old, bool) is not isinstance(value, bool):
            patch[name] = value
    return patch


def _check_no_null(patch: object, old: object) -> None:
    """A null that takes nothing away would be lost on the way."""
    if not isinstance(patch, Mapping):
        return
    for name, value in patch.items():
        there = old.get(name, _ABSENT) if isinstance(old, Mapping) else _ABSENT
        if value is None and there is _ABSENT:
            raise ValueError(f"{name}: an edit cannot add a member that is null; duplicate the job instead")
        _check_no_null(value, there)
