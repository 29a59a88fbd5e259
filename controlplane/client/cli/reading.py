"""From options and files to what the API takes."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from controlplane.client.cli.session import Wrong
from controlplane.client.wire import without_none

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def read_text(source: str) -> str:
    """A file's text; `-` is stdin."""
    if source == "-":
        return sys.stdin.read()
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise Wrong(f"{source} cannot be read: {fault}") from None


def payload_of(text: str | None, *, name: str = "payload") -> dict[str, Any]:
    """`{"payload": …}` (or under another name) from JSON, `@file` or `@-`; nothing from None."""
    if text is None:
        return {}
    source = read_text(text[1:]) if text.startswith("@") else text
    try:
        return {name: json.loads(source)}
    except ValueError as fault:
        raise Wrong(f"the {name} is not JSON: {fault} (a text is written '\"in quotes\"')") from None


def seconds_of(text: str) -> int:
    """`90`, `90s`, `15m`, `2h` or `1d` as seconds."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :] or "s"
    if not (number.isascii() and number.isdigit()) or unit not in _UNITS:
        raise Wrong(f"{text!r} is no duration; 90s, 15m, 2h and 1d would be")
    return int(number) * _UNITS[unit]


def pairs_of(texts: Sequence[str], separator: str, what: str) -> dict[str, str]:
    """`Name: value` options as a mapping."""
    found = {}
    for text in texts:
        name, there, value = text.partition(separator)
        if not there or not name.strip():
            raise Wrong(f"{what} is given as name{separator}value, not as {text!r}")
        found[name.strip()] = value.strip()
    return found


def schedule_of(
    *,
    cron: str | None,
    once: str | None,
    every: str | None,
    now: bool,
    time_zone: str | None,
    start: str | None = None,
    end: str | None = None,
    dialect: str | None = None,
    calendar: str | None = None,
    roll: str | None = None,
) -> dict[str, Any] | None:
    """The schedule that options describe; None if they describe none."""
    kinds = [kind for kind, given in (("--cron", cron), ("--once", once), ("--every", every)) if given]
    kinds += ["--now"] if now else []
    if len(kinds) > 1:
        raise Wrong(f"{' and '.join(kinds)}: a job has one schedule")
    of_cron = {"--dialect": dialect, "--calendar": calendar, "--roll": roll}
    if not cron and (given := [option for option, value in of_cron.items() if value is not None]):
        raise Wrong(f"{', '.join(given)} {'goes' if len(given) == 1 else 'go'} with --cron")
    if cron:
        return without_none(
            type="CRON",
            cron=cron,
            dialect=dialect.upper() if dialect else None,
            time_zone=time_zone or "UTC",
            start_at=start,
            end_at=end,
            calendar=None if calendar == "none" else calendar,
            roll=roll.upper() if roll else None,
        )
    if once:
        return without_none(type="ONCE", run_at=once, time_zone=time_zone)
    if every:
        return without_none(type="RATE", every_seconds=seconds_of(every), start_at=start, end_at=end)
    if now:
        return {"type": "NOW"}
    if time_zone or start or end:
        raise Wrong("--time-zone, --start and --end go with a schedule: --cron, --once or --every")
    return None


def read_document(source: str) -> Any:
    """A JSON or TOML file (by its name; stdin is JSON)."""
    text = read_text(source)
    try:
        if source.endswith(".toml"):
            return _plain(tomllib.loads(text))
        return json.loads(text)
    except (tomllib.TOMLDecodeError, ValueError) as fault:
        hint = " (YAML is not read; convert it to JSON)" if source.endswith((".yaml", ".yml")) else ""
        raise Wrong(f"{source}: {fault}{hint}") from None


def _plain(value: Any) -> Any:
    """TOML's dates as the texts that the API takes."""
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def read_jobs(source: str) -> list[dict[str, Any]]:
    """The jobs of a file for `apply`: a list, or `jobs` (in TOML: `[[jobs]]`). Each needs a key."""
    document = read_document(source)
    jobs = document.get("jobs") if isinstance(document, dict) else document
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise Wrong(f"{source}: a list of jobs is expected, or an object with `jobs`")
    faults = [f"jobs.{i}: needs a key" for i, job in enumerate(jobs) if not job.get("key")]
    keys = [job.get("key") for job in jobs]
    faults += [f"jobs.{i}: the key {key} is there twice" for i, key in enumerate(keys) if key in keys[:i]]
    if faults:
        raise Wrong("\n  ".join([f"{source}:", *faults]))
    return jobs


def day_of(text: str | None, today: date) -> str | None:
    """A day: `2026-09-28`, `today`, `yesterday`."""
    if text in (None, "today", "yesterday"):
        return None if text is None else str(today - timedelta(days=text == "yesterday"))
    try:
        return date.fromisoformat(text or "").isoformat()
    except ValueError:
        raise Wrong(f"{text!r} is no day; {today} would be one") from None
