"""EventBridge Scheduler's schedules, as `aws scheduler get-schedule` shows them. Pure.

An export is a JSON list of such documents, or one after the other, or `{"Schedules": […]}`. Rules of
the older EventBridge (`describe-rule`) are read as well, for their `ScheduleExpression`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from controlplane.client.importers.eventbridge_cron import cron_schedule
from controlplane.client.importers.plan import (
    CannotImport,
    CannotSay,
    Destination,
    Difference,
    Plan,
    PlannedJob,
    Refused,
    display_name,
)

_RATE = re.compile(r"rate\(\s*(\d+)\s+(minute|hour|day)s?\s*\)", re.ASCII)
_AT = re.compile(r"at\(\s*(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\s*\)", re.ASCII)
_CRON = re.compile(r"cron\((.*)\)")
_SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}

#: What Scheduler does if a schedule says nothing.
_AWS_RETRIES = 185
_AWS_PRECISION_SECONDS = 60
_MOST_ATTEMPTS = 100
_NOTHING_MORE_TO_SAY = {"Mode": "OFF"}

GENERAL = (
    Difference(
        about="target",
        detail="Scheduler calls AWS APIs; here one HTTP target gets each schedule's Input as its payload",
    ),
    Difference(
        about="misfire",
        detail="after an outage the latest missed occurrence runs late (misfire_policy RUN_ONCE)",
    ),
)


def read_documents(text: str) -> list[dict[str, Any]]:
    """The schedules of an export."""
    found: list[dict[str, Any]] = []
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace() or text[at] == ",":
            at += 1
            continue
        try:
            document, at = decoder.raw_decode(text, at)
        except ValueError as fault:
            raise CannotImport(f"this is not JSON: {fault}") from None
        if isinstance(document, dict) and isinstance(document.get("Schedules"), list):
            document = document["Schedules"]
        found += document if isinstance(document, list) else [document]
    if not all(isinstance(item, dict) for item in found):
        raise CannotImport("a JSON object for each schedule is expected, as get-schedule prints it")
    if not found:
        raise CannotImport("there are no schedules in it")
    return found


def read_eventbridge(text: str, *, destination: Destination, now: datetime) -> Plan:
    """The jobs of an export. `now` tells what is over."""
    jobs: list[PlannedJob] = []
    refused: list[Refused] = []
    keys: set[str] = set()
    groups: set[str] = set()
    for document in read_documents(text):
        name = str(document.get("Name", "(no name)"))
        groups.add(_group(document))
        try:
            job = _job(document, name, destination, now)
            if job.key in keys:
                raise CannotSay("a schedule of that group and name was there already")
        except CannotSay as why:
            expression = str(document.get("ScheduleExpression", ""))
            refused.append(Refused(source=name, text=expression, reason=str(why)))
        else:
            keys.add(job.key)
            jobs.append(job)
    return Plan(
        jobs=tuple(jobs),
        refused=tuple(refused),
        differences=GENERAL,
        prefixes=tuple(_key_prefix(group) for group in sorted(groups)),
    )


def _group(document: Mapping[str, Any]) -> str:
    return str(document.get("GroupName", "default"))


def _key_prefix(group: str) -> str:
    return f"eventbridge:{group}:"


def _job(document: Mapping[str, Any], name: str, destination: Destination, now: datetime) -> PlannedJob:
    group = _group(document)
    differences: list[Difference] = []
    schedule = _schedule(document, now, differences)
    target = document.get("Target") or {}
    if not isinstance(target, Mapping):
        raise CannotSay("its Target is no object")
    if arn := target.get("Arn"):
        differences.append(
            Difference(about="target", detail=f"it called {arn}; now your target must do that")
        )
    body: dict[str, Any] = {
        "name": display_name(name),
        "schedule": schedule,
        **destination.body(name=name, group=group),
        "dispatch_window_seconds": _window(document, destination, differences),
    }
    if "Input" in target:
        body["payload"] = _payload(str(target["Input"]), differences)
    if destination.max_attempts is None:
        body["retry_policy"] = _retries(target.get("RetryPolicy") or {}, differences)
    if (letters := target.get("DeadLetterConfig")) and letters.get("Arn"):
        detail = f"failures went to {letters['Arn']}; here they are in the dead-letter queue of the API"
        differences.append(Difference(about="dead letters", detail=detail))
    if document.get("ActionAfterCompletion") == "DELETE":
        differences.append(Difference(about="end", detail="it is kept as COMPLETED instead of being deleted"))
    paused = document.get("State", "ENABLED") == "DISABLED"
    if paused:
        differences.append(Difference(about="state", detail="it is disabled there; here it becomes PAUSED"))
    return PlannedJob(
        source=name,
        key=f"{_key_prefix(group)}{name}"[:200],
        body=body,
        paused=paused,
        differences=tuple(differences),
    )


# --- when --------------------------------------------------------------------------------
def _schedule(document: Mapping[str, Any], now: datetime, differences: list[Difference]) -> dict[str, Any]:
    expression = document.get("ScheduleExpression")
    if not isinstance(expression, str) or not expression.strip():
        if "EventPattern" in document:
            raise CannotSay("it waits for events (EventPattern); only schedules can be imported")
        raise CannotSay(
            "it has no ScheduleExpression: list-schedules leaves it out; export with"
            " `aws scheduler get-schedule --group-name … --name …` for each"
        )
    zone = str(document.get("ScheduleExpressionTimezone") or "UTC")
    start, end = _date(document, "StartDate"), _date(document, "EndDate")
    if end is not None and end <= now:
        raise CannotSay(f"it is over: its EndDate is {end:%Y-%m-%d %H:%M}Z")
    text = expression.strip()
    if match := _AT.fullmatch(text):
        differences.append(
            Difference(
                about="dst", detail="at a time that the clock jumps over, it runs right after the jump"
            )
        )
        dst = {"gap": "SHIFT", "overlap": "FIRST"}
        return {"type": "ONCE", "run_at": match[1], "time_zone": zone, "dst": dst}
    if match := _RATE.fullmatch(text):
        return _rate(int(match[1]) * _SECONDS[match[2]], document, start, end, differences)
    if match := _CRON.fullmatch(text):
        return cron_schedule(match[1], zone, start=start, end=end, now=now, differences=differences)
    raise CannotSay(f"{text!r} is none of rate(…), at(…) and cron(…)")


def _rate(
    seconds: int,
    document: Mapping[str, Any],
    start: datetime | None,
    end: datetime | None,
    differences: list[Difference],
) -> dict[str, Any]:
    if seconds == 0:
        raise CannotSay("a rate of 0 never moves")
    schedule: dict[str, Any] = {"type": "RATE", "every_seconds": seconds}
    anchor = start or _date(document, "CreationDate")
    if anchor is None:
        # Without an anchor, importing again would move it.
        raise CannotSay(
            "a rate needs its StartDate or CreationDate, to keep its phase; get-schedule shows it"
        )
    schedule["start_at"] = _text(anchor.replace(microsecond=0))
    if start is None:
        differences.append(Difference(about="phase", detail="it is counted from its CreationDate"))
    if end is not None:
        schedule["end_at"] = _text(end)
    return schedule


def _date(document: Mapping[str, Any], name: str) -> datetime | None:
    value = document.get(name)
    if value is None:
        return None
    try:
        # The first version of AWS's command line shows seconds, the second ISO 8601.
        found = (
            datetime.fromtimestamp(value, UTC)
            if isinstance(value, (int, float))
            else datetime.fromisoformat(str(value))
        )
    except (ValueError, OverflowError, OSError):
        raise CannotSay(f"its {name} is no date: {value!r}") from None
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def _text(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- how ---------------------------------------------------------------------------------
def _window(document: Mapping[str, Any], destination: Destination, differences: list[Difference]) -> int:
    if destination.window_seconds is not None:
        return destination.window_seconds
    flexible = document.get("FlexibleTimeWindow") or _NOTHING_MORE_TO_SAY
    if flexible.get("Mode") == "FLEXIBLE":
        seconds = int(flexible.get("MaximumWindowInMinutes") or 1) * 60
        detail = f"the window of {seconds // 60} min is kept, but never longer than the schedule's own period"
        differences.append(Difference(about="window", detail=detail))
        return seconds
    differences.append(
        Difference(
            about="window",
            detail=f"it starts up to {_AWS_PRECISION_SECONDS} s after its time, as Scheduler promises;"
            " always at the same place in that minute",
        )
    )
    return _AWS_PRECISION_SECONDS


def _payload(text: str, differences: list[Difference]) -> Any:
    if "<aws.scheduler." in text:
        differences.append(
            Difference(
                about="payload",
                detail="<aws.scheduler.…> words are not replaced; the call's headers say id and attempt",
            )
        )
    try:
        return json.loads(text)
    except ValueError:
        differences.append(
            Difference(about="payload", detail="its Input is no JSON; it is sent as a JSON string")
        )
        return text


def _retries(policy: Mapping[str, Any], differences: list[Difference]) -> dict[str, Any]:
    retries = int(policy.get("MaximumRetryAttempts", _AWS_RETRIES))
    attempts = min(retries + 1, _MOST_ATTEMPTS)
    if attempts <= retries:
        detail = f"{retries} retries there, {attempts - 1} here"
        differences.append(Difference(about="retry", detail=detail))
    age = int(policy.get("MaximumEventAgeInSeconds", 86_400))
    if retries:
        differences.append(
            Difference(about="retry", detail=f"attempts are limited, but not their age ({age} s there)")
        )
    return {"max_attempts": attempts, "initial_backoff_seconds": 10, "max_backoff_seconds": 900}
