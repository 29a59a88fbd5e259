"""Crontabs, user's and system's, as cronie and Debian's cron read them. Pure.

A line becomes a job that calls a target with the command in its payload; running it is up to the
target. What differs from cron is listed, what cannot be said is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from controlplane.client.importers.fields import MONTHS, WEEKDAYS, Field, numbers, shown
from controlplane.client.importers.plan import (
    CannotImport,
    CannotSay,
    Destination,
    Difference,
    Plan,
    PlannedJob,
    Refused,
    digest,
    display_name,
    slug,
)

_FIELDS = (
    Field(name="minute", low=0, high=59),
    Field(name="hour", low=0, high=23),
    Field(name="day of month", low=1, high=31),
    Field(name="month", low=1, high=12, names=MONTHS),
    Field(name="day of week", low=0, high=6, top=7, names=WEEKDAYS),
)
_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@every_minute": "* * * * *",
}
_SETTING = re.compile(r"\s*(\"[^\"]*\"|'[^']*'|[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")
_MINUTE_SECONDS = 60
_FILE_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
_SCRIPT = re.compile(r"[A-Za-z0-9_./+-]{1,200}\.(?:sh|bash|py|pl|rb|php|js|ts|jar|lua|R)")
#: Words that run, or stand before, another program.
_LINES_OF_THE_SHELL = {"cd", "test", "[", "set", "export", "source", ".", "umask", "sleep", "true", ":"}
_SHELLS_OWN = _LINES_OF_THE_SHELL | {"exec", "nohup", "time", "chronic", "!", "if", "then"}
#: Settings of cron itself, not of the commands.
_CRONS_OWN = {"CRON_TZ", "MAILTO", "MAILFROM", "RANDOM_DELAY", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING"}

GENERAL = (
    Difference(about="target", detail="cron runs the command itself; here a target gets it in its payload"),
    Difference(
        about="misfire",
        detail="cron forgets what came due while it was down; here the latest missed occurrence runs late"
        " (misfire_policy RUN_ONCE)",
    ),
    Difference(about="retry", detail="cron never tries again; here failed calls are repeated (retry_policy)"),
)


@dataclass(frozen=True, kw_only=True)
class _Context:
    """What the lines above say."""

    zone: str | None
    environment: Mapping[str, str] = field(default_factory=dict)
    random_delay_minutes: int = 0
    mails: bool = False


@dataclass(frozen=True, kw_only=True)
class _Entry:
    line: int
    text: str
    expression: str
    user: str | None
    command: str
    stdin: str | None
    context: _Context


def read_crontab(
    text: str,
    *,
    name: str,
    destination: Destination,
    time_zone: str | None = None,
    system: bool = False,
) -> Plan:
    """The jobs of a crontab.

    `name` tells crontabs apart: it is part of each job's key and tag. `time_zone` is that of the
    host, for lines that no CRON_TZ stands above. `system`: the sixth field is a user.
    """
    if time_zone is not None and not _known(time_zone):
        raise CannotImport(f"{time_zone!r} is not a time zone that this machine knows")
    refused: list[Refused] = []
    jobs: list[PlannedJob] = []
    seen: dict[str, int] = {}
    for entry in _entries(text, time_zone, system, refused):
        try:
            job = _job(entry, name, destination, seen)
        except CannotSay as why:
            refused.append(Refused(source=f"line {entry.line}", text=entry.text, reason=str(why)))
        else:
            jobs.append(job)
    refused.sort(key=lambda r: int(r.source.removeprefix("line ")))
    return Plan(jobs=tuple(jobs), refused=tuple(refused), differences=GENERAL, prefixes=(key_prefix(name),))


# --- lines -------------------------------------------------------------------------------
def _entries(text: str, zone: str | None, system: bool, refused: list[Refused]) -> Iterator[_Entry]:
    context = _Context(zone=zone)
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        try:
            if (setting := _SETTING.fullmatch(line)) is not None:
                context = _set(context, setting[1].strip("\"'"), _unquoted(setting[2]), zone)
            else:
                yield _split(number, line, system, context)
        except CannotSay as why:
            refused.append(Refused(source=f"line {number}", text=line, reason=str(why)))


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _set(context: _Context, name: str, value: str, host_zone: str | None) -> _Context:
    match name:
        case "CRON_TZ":
            if value and not _known(value):
                raise CannotSay(f"{value!r} is not a time zone that this machine knows")
            return replace(context, zone=value or host_zone)
        case "MAILTO":
            return replace(context, mails=bool(value))
        case "RANDOM_DELAY":
            return replace(context, random_delay_minutes=int(value) if value.isdigit() else 0)
        case _ if name in _CRONS_OWN:
            return context
    return replace(context, environment={**context.environment, name: value})


def _known(zone: str) -> bool:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _split(number: int, line: str, system: bool, context: _Context) -> _Entry:
    quiet = line.removeprefix("-").lstrip()  # cronie: a leading `-` keeps it out of syslog
    count = 1 if quiet.startswith("@") else 5
    parts = quiet.split(None, count + (1 if system else 0))
    if len(parts) < count + (2 if system else 1):
        what = "a schedule, a user and a command" if system else "a schedule and a command"
        raise CannotSay(f"{what} are expected")
    user = parts[count] if system else None
    command, stdin = _command(parts[-1])
    return _Entry(
        line=number,
        text=line,
        expression=" ".join(parts[:count]),
        user=user,
        command=command,
        stdin=stdin,
        context=context,
    )


def _command(text: str) -> tuple[str, str | None]:
    """The command, and what it reads: behind the first bare `%`, where each further one ends a line."""
    pieces = re.split(r"(?<!\\)%", text)
    command, *rest = (piece.replace("\\%", "%") for piece in pieces)
    return command.strip(), "\n".join(rest) + "\n" if rest else None


# --- names -------------------------------------------------------------------------------
def key_prefix(name: str) -> str:
    """How the keys of all jobs of a crontab begin."""
    return f"crontab:{slug(name)}:"


def program(command: str) -> str:
    """The program a command runs, by its file name. Arguments, settings and addresses may hold secrets,
    and names, keys and paths are seen by everybody: nothing else of the command is in them."""
    for part in re.split(r"&&|\|\||[;|&\n]", command):
        words = [word.strip("\"'(){}") for word in part.split()]
        while words and ("=" in words[0] or words[0] in _SHELLS_OWN):
            # What stands behind `cd` is a place, not a program.
            words = [] if words[0] in _LINES_OF_THE_SHELL else words[1:]
        if not words:
            continue
        first = words[0].rsplit("/", 1)[-1]
        script = words[1].rsplit("/", 1)[-1] if len(words) > 1 and _SCRIPT.fullmatch(words[1]) else ""
        if _FILE_NAME.fullmatch(first):
            return f"{first} {script}".strip()
    return "command"


# --- jobs --------------------------------------------------------------------------------
def _job(entry: _Entry, name: str, destination: Destination, seen: dict[str, int]) -> PlannedJob:
    context = entry.context
    if context.zone is None:
        raise CannotSay(
            "its time zone is not known: no CRON_TZ stands above it, and --time-zone did not say the host's"
        )
    differences: list[Difference] = []
    schedule = _schedule(entry.expression, context.zone)
    payload: dict[str, Any] = {"command": entry.command}
    if entry.stdin is not None:
        payload["stdin"] = entry.stdin
    if entry.user is not None:
        payload["user"] = entry.user
    if context.environment:
        payload["environment"] = dict(context.environment)
    if "TZ" in context.environment:
        differences.append(
            Difference(
                about="zone",
                detail=f"TZ={context.environment['TZ']} goes to the command only, as in cronie and Debian;"
                f" the schedule is in {context.zone} (CRON_TZ would change it)",
            )
        )
    if context.mails:
        differences.append(
            Difference(about="mail", detail="output is not mailed; what the target answers is in the run")
        )
    called = program(entry.command)
    told_apart = digest(entry.user or "", entry.command, entry.stdin or "")
    base = f"{key_prefix(name)}{slug(called)}-{told_apart}"
    seen[base] = seen.get(base, 0) + 1
    key = base if seen[base] == 1 else f"{base}-{seen[base]}"
    window = destination.window_seconds
    if window is None:
        window = max(1, context.random_delay_minutes) * _MINUTE_SECONDS
    if window > 1:
        differences.append(Difference(about="window", detail=f"it starts up to {window} s after its minute"))
    body = {
        "name": display_name(called),
        "schedule": schedule,
        **destination.body(slug=slug(called), user=entry.user or "", name=slug(name)),
        "payload": payload,
        "dispatch_window_seconds": window,
    }
    return PlannedJob(source=f"line {entry.line}", key=key, body=body, differences=tuple(differences))


def _schedule(expression: str, zone: str) -> dict[str, Any]:
    text = expression.lower()
    if text == "@reboot":
        raise CannotSay(
            "@reboot is no time; start it with the machine (a systemd unit), or trigger it by API"
        )
    if text.startswith("@"):
        if text not in _ALIASES:
            raise CannotSay(f"{expression} is not known")
        text = _ALIASES[text]
    parts = text.split()
    if "~" in text:
        raise CannotSay("`~` picks a random time at each start of cron; choose one, and a dispatch window")
    for part, letter in ((p, c) for p in parts for c in "?#" if c in p):
        raise CannotSay(f"`{letter}` in `{part}` is Quartz or EventBridge syntax, not cron's")
    cron = " ".join(shown(f, part) for f, part in zip(_FIELDS, parts, strict=True))
    _can_fire(parts)
    schedule: dict[str, Any] = {"type": "CRON", "cron": cron, "time_zone": zone}
    if parts[0].startswith("*") and not parts[1].startswith("*"):
        # To cron a `*` in the minutes makes it a wildcard job; here the hours decide. The policy
        # below says for it what cron does: nothing in a gap, both passes of an overlap.
        schedule["dst"] = {"gap": "SKIP", "overlap": "BOTH"}
    elif not parts[1].startswith("*"):
        schedule["dst"] = {"gap": "SHIFT", "overlap": "FIRST"}
    return schedule


def _can_fire(parts: list[str]) -> None:
    """Refuse what no date matches: cron keeps such a line in silence."""
    days, months = numbers(_FIELDS[2], parts[2]), numbers(_FIELDS[3], parts[3])
    longest = max(29 if m == 2 else 30 if m in (4, 6, 9, 11) else 31 for m in months)
    either = not (parts[2].startswith("*") or parts[4].startswith("*"))
    if not either and min(days) > longest:
        raise CannotSay("none of its months has such a day; it never runs")
