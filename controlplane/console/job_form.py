"""The form of a job: from its fields to the API's body, and from the API's faults back to its
fields. What an edit changes is in `job_changes.py`. Pure."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from controlplane.console.cells_client import Fault

DEFAULTS: dict[str, str] = {
    "kind": "CRON",
    "cron": "0 9 * * 1-5",
    "dialect": "UNIX",
    "roll": "SKIP",
    "every": "15",
    "every_unit": "60",
    "target_kind": "HTTP",
    "method": "POST",
    "timeout_seconds": "30",
    "lease_seconds": "60",
    "wait": "yes",
    "delivery": "AT_LEAST_ONCE",
    "dst_gap": "SHIFT",
    "dst_overlap": "FIRST",
    "priority": "DEFAULT",
    "max_attempts": "3",
    "initial_backoff_seconds": "10",
    "max_backoff_seconds": "600",
    "misfire_policy": "RUN_ONCE",
    "misfire_grace_seconds": "0",
    "overlap_policy": "ALLOW",
}
#: Every field, in the order of the form.
FIELDS = (
    *("name", "kind", "dialect", "cron", "every", "every_unit", "run_at", "time_zone", "start_at", "end_at"),
    *("calendar", "roll", "dst_gap", "dst_overlap", "target_kind", "target_id", "method", "path"),
    *("timeout_seconds", "task_queue", "lease_seconds", "definition", "definition_version", "wait"),
    *("payload", "headers"),
    *("max_attempts", "initial_backoff_seconds", "max_backoff_seconds", "priority"),
    *("dispatch_window_seconds", "misfire_policy", "misfire_grace_seconds", "delivery", "region_policy"),
    *("overlap_policy", "concurrency_key", "max_concurrent"),
    *("on_success", "on_success_path", "on_failure", "on_failure_path", "tags", "key"),
)
#: Where a pointer of the API is shown. The longest beginning counts.
_PLACES: dict[str, str] = {
    "/schedule": "cron",
    "/schedule/type": "kind",
    "/schedule/cron": "cron",
    "/schedule/dialect": "dialect",
    "/schedule/calendar": "calendar",
    "/schedule/roll": "roll",
    "/schedule/time_zone": "time_zone",
    "/schedule/every_seconds": "every",
    "/schedule/run_at": "run_at",
    "/schedule/start_at": "start_at",
    "/schedule/end_at": "end_at",
    "/schedule/dst": "dst_gap",
    "/schedule/dst/overlap": "dst_overlap",
    "/target": "target_id",
    "/target/type": "target_kind",
    "/target/task_queue": "task_queue",
    "/target/lease_seconds": "lease_seconds",
    "/target/definition": "definition",
    "/target/version": "definition_version",
    "/target/wait": "wait",
    "/target/path": "path",
    "/target/method": "method",
    "/target/timeout_seconds": "timeout_seconds",
    "/payload": "payload",
    "/headers": "headers",
    "/name": "name",
    "/key": "key",
    "/tags": "tags",
    "/priority": "priority",
    "/dispatch_window_seconds": "dispatch_window_seconds",
    "/retry_policy": "max_attempts",
    "/retry_policy/initial_backoff_seconds": "initial_backoff_seconds",
    "/retry_policy/max_backoff_seconds": "max_backoff_seconds",
    "/misfire_policy": "misfire_policy",
    "/delivery": "delivery",
    "/region_policy": "region_policy",
    "/overlap_policy": "overlap_policy",
    "/misfire_grace_seconds": "misfire_grace_seconds",
    "/concurrency_key": "concurrency_key",
    "/max_concurrent": "max_concurrent",
    "/on_success": "on_success",
    "/on_success/path": "on_success_path",
    "/on_failure": "on_failure",
    "/on_failure/path": "on_failure_path",
}
#: Who is told of a run's end: the API's members, which are fields for the target; each has one for a path.
CALLBACKS = ("on_success", "on_failure")
SCHEDULE_FIELDS = (
    *("cron", "dialect", "time_zone", "every", "run_at", "start_at", "end_at", "calendar", "roll"),
    *("dst_gap", "dst_overlap"),
)
#: What a browser's field for local times sends; it leaves out seconds that are none.
LOCAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?")


@dataclass
class JobForm:
    """What a person has typed so far, and what is wrong with it."""

    values: dict[str, str]
    token: str
    faults: dict[str, list[str]] = field(default_factory=dict)
    general: list[str] = field(default_factory=list)

    @property
    def field_faults(self) -> list[tuple[str, str]]:
        """(field, sentence) of all faults, in the form's order."""
        order = {name: i for i, name in enumerate(FIELDS)}
        found = [(name, text) for name, texts in self.faults.items() for text in texts]
        return sorted(found, key=lambda item: order.get(item[0], 99))

    def blame(self, faults: Iterable[Fault]) -> None:
        """Put the API's faults at their fields."""
        for fault in faults:
            name = place_of(fault.place)
            if name is None:
                self.general.append(f"{fault.place} {fault.detail}".strip())
            elif fault.detail not in self.faults.setdefault(name, []):
                self.faults[name].append(fault.detail)

    def schedule(self) -> dict[str, Any]:
        """The API's `schedule`. What is no number goes as text: the API says what is wrong."""
        value = self.values.get
        kind = value("kind", "CRON")
        made: dict[str, Any] = {"type": kind}
        if kind == "CRON":
            made["cron"] = value("cron", "")
            if (dialect := value("dialect") or "UNIX") != "UNIX":
                made["dialect"] = dialect
            if calendar := value("calendar", ""):
                made |= {"calendar": calendar, "roll": value("roll") or "SKIP"}
        if kind == "RATE":
            made["every_seconds"] = _seconds(value("every", ""), value("every_unit", "1"))
        if kind == "ONCE":
            made["run_at"] = _instant(value("run_at", ""))
        if kind in ("CRON", "ONCE"):
            made["time_zone"] = value("time_zone") or "UTC"
            made["dst"] = {"gap": value("dst_gap", "SHIFT"), "overlap": value("dst_overlap", "FIRST")}
        if kind in ("CRON", "RATE"):
            for name in ("start_at", "end_at"):
                if at := value(name, ""):
                    made[name] = _instant(at, "Z")
        return made

    def target(self) -> dict[str, Any]:
        """The API's `target`."""
        value = self.values.get
        if value("target_kind") == "TASK_QUEUE":
            queue, lease = value("task_queue", ""), _number(value("lease_seconds", ""))
            return {"type": "TASK_QUEUE", "task_queue": queue, "lease_seconds": lease}
        if value("target_kind") == "WORKFLOW":
            version = value("definition_version", "")
            return {
                "type": "WORKFLOW",
                "definition": value("definition", ""),
                "version": _number(version) if version else None,
                "wait": value("wait") != "no",
            }
        made: dict[str, Any] = {
            "type": "HTTP",
            "target_id": value("target_id", ""),
            "method": value("method", "POST"),
            "timeout_seconds": _number(value("timeout_seconds", "")),
        }
        if path := value("path", ""):
            made["path"] = path
        return made

    def body(self) -> dict[str, Any]:
        """The API's body; faults of what cannot even be sent are noted."""
        value = self.values.get
        made: dict[str, Any] = {
            "schedule": self.schedule(),
            "target": self.target(),
            "priority": value("priority", "DEFAULT"),
            "misfire_policy": value("misfire_policy", "RUN_ONCE"),
            "delivery": value("delivery") or "AT_LEAST_ONCE",
            "overlap_policy": value("overlap_policy") or "ALLOW",
            "retry_policy": {
                name: _number(value(name, ""))
                for name in ("max_attempts", "initial_backoff_seconds", "max_backoff_seconds")
            },
        }
        for name in ("name", "key", "region_policy", "concurrency_key"):
            if text := value(name, ""):
                made[name] = text
        for name in ("max_concurrent", "misfire_grace_seconds"):
            if text := value(name, ""):
                made[name] = _number(text)
        for name in CALLBACKS:
            target_id, below = value(name, ""), value(f"{name}_path", "")
            if target_id or below:
                made[name] = {"target_id": target_id} | ({"path": below} if below else {})
        if tags := [tag.strip() for tag in value("tags", "").split(",") if tag.strip()]:
            made["tags"] = tags
        if window := value("dispatch_window_seconds", ""):
            made["dispatch_window_seconds"] = _number(window)
        # Workers and workflows are handed no headers.
        if value("target_kind") not in ("TASK_QUEUE", "WORKFLOW") and (headers := self._headers()):
            made["headers"] = headers
        if payload := value("payload", ""):
            made["payload"] = self._payload(payload)
        return made

    def _headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for number, line in enumerate(self.values.get("headers", "").splitlines(), 1):
            if not line.strip():
                continue
            name, colon, content = line.partition(":")
            if not colon:
                self.faults.setdefault("headers", []).append(f"line {number} is not `Name: value`")
            elif name.strip() in found:
                self.faults.setdefault("headers", []).append(f"line {number} repeats {name.strip()}")
            found[name.strip()] = content.strip()
        return found

    def _payload(self, text: str) -> msgspec.Raw | None:
        try:
            json.loads(text)
        except (ValueError, RecursionError) as fault:
            what = (
                f"{fault.msg}, line {fault.lineno}" if isinstance(fault, json.JSONDecodeError) else "too deep"
            )
            self.faults.setdefault("payload", []).append(f"is not JSON: {what}")
            return None
        # As it was typed: a large number must keep its digits.
        return msgspec.Raw(text.encode())


def new_form(query: Mapping[str, str], zone: str) -> JobForm:
    """An empty form; the URL may fill fields in."""
    given = {name: query[name][:2000] for name in FIELDS if query.get(name)}
    return JobForm(values={**DEFAULTS, "time_zone": zone, **given}, token=str(uuid.uuid4()))


def read_form(posted: Mapping[str, str]) -> JobForm:
    """What was sent."""
    values = {name: posted.get(name, "").strip() for name in FIELDS}
    return JobForm(values=values, token=posted.get("token", "")[:64] or str(uuid.uuid4()))


def place_of(pointer: str) -> str | None:
    """The field a pointer is about."""
    while pointer:
        if pointer in _PLACES:
            return _PLACES[pointer]
        pointer = pointer.rpartition("/")[0]
    return None


def _instant(text: str, offset: str = "") -> str:
    """With seconds and offset, if it is a local time; else as it was typed: the API says what is wrong."""
    found = LOCAL_TIME.fullmatch(text)
    return text if found is None else f"{text}{'' if found[1] else ':00'}{offset}"


def _number(text: str) -> int | float | str:
    try:
        return int(text)
    except ValueError:
        try:
            number = float(text)
        except ValueError:
            return text
        return number if abs(number) < 1e15 else text


def _seconds(amount: str, unit: str) -> int | float | str:
    number = _number(amount)
    size = _number(unit)
    if isinstance(number, str) or not isinstance(size, int):
        return amount
    product = number * size
    return int(product) if product == int(product) else product
