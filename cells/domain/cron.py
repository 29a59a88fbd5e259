"""Five-field Unix cron expressions. Other dialects are in `dialects.py`, the walk in `walker.py`."""

from __future__ import annotations

import re
from functools import lru_cache

from cells.domain.faults import ScheduleError
from cells.domain.fields import DAYS, MONTHS, POINTER, Field, parse_field, plain
from cells.domain.walker import Cron, DayRule

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day-of-month", 1, 31),
    Field("month", 1, 12, MONTHS, 12),
    Field("day-of-week", 0, 6, DAYS, 7, 7),
)

_FIVE = "the UNIX dialect has five fields: minute hour day-of-month month day-of-week"
_FOREIGN = (
    (re.compile(r"\?"), "`?` is Quartz or EventBridge syntax"),
    (re.compile(r"#"), "`#` (the n-th weekday of a month) is Quartz or EventBridge syntax"),
    (
        re.compile(r"(?<![a-z])l(?![a-z])|(?<![a-z])lw(?![a-z])|(?:sun|mon|tue|wed|thu|fri|sat)l"),
        "`L` (last) is Quartz or EventBridge syntax",
    ),
    (re.compile(r"[0-9]w|(?<![a-z])w(?![a-z])"), "`W` (nearest weekday) is Quartz syntax"),
    (re.compile(r"(?<![a-z])h(?![a-z])"), "`H` (hashed) is Jenkins syntax"),
    (re.compile(r"(?<![a-z])r(?![a-z])"), "`R` (random) is croniter syntax"),
    (re.compile(r"^\+"), "`+` is OCPS 1.4 syntax"),
)
_SAY = "; say so with `dialect`"


@lru_cache(maxsize=4096)
def parse_cron(text: str) -> Cron:
    """Parse a five-field expression or an alias such as `@daily`.

    Raises `ScheduleError` that names the field, or the foreign dialect where it looks like one.
    """
    expression = plain(text, _FIVE)
    if re.match(r"(cron|rate|at)\s*\(", expression):
        raise ScheduleError(
            POINTER,
            f"this is EventBridge syntax{_SAY} EVENTBRIDGE; {_FIVE},"
            " and RATE and ONCE are schedule types of their own",
        )
    if re.match(r"r[0-9]*/", expression):
        raise ScheduleError(POINTER, "this is an ISO 8601 interval; use a RATE schedule or five cron fields")
    if expression.startswith("@"):
        if expression not in ALIASES:
            raise ScheduleError(
                POINTER, f"{expression} is not known; use one of {', '.join(sorted(ALIASES))} or five fields"
            )
        expression = ALIASES[expression]
    texts = expression.split()
    if len(texts) != len(FIELDS):
        raise ScheduleError(POINTER, _wrong_count(texts))
    faults: list[tuple[str, str]] = []
    sets: list[frozenset[int]] = []
    for field, part in zip(FIELDS, texts, strict=True):
        try:
            sets.append(parse_field(field, part, _foreign))
        except ScheduleError as error:
            faults += error.faults
    if faults:
        raise ScheduleError.of(faults)
    minutes, hours, days, months, weekdays = sets
    # Vixie's rule looks at the text: `*/2` and `*,1` have the star flag, `0-6` has not.
    either = not (texts[2].startswith("*") or texts[4].startswith("*"))
    cron = Cron(
        minutes=minutes,
        hours=hours,
        months=months,
        rule=DayRule(days=days, weekdays=weekdays, either=either),
        frequent=texts[1].startswith("*"),
    )
    if not cron.can_fire:
        raise ScheduleError(POINTER, "day-of-month: none of the months has such a day; it can never fire")
    return cron


def _wrong_count(texts: list[str]) -> str:
    n = len(texts)
    if n == 7:
        return f"7 fields: this looks like Quartz (seconds first, year last){_SAY} QUARTZ; {_FIVE}"
    if n == 6:
        if "?" in (texts[2], texts[4]) or re.search(r"(19|2[01])[0-9][0-9]", texts[5]):
            return f"6 fields: this looks like EventBridge (year last){_SAY} EVENTBRIDGE; {_FIVE}"
        if "?" in (texts[3], texts[5]):
            return f"6 fields: this looks like Quartz (seconds first){_SAY} QUARTZ; {_FIVE}"
        return f"6 fields: seconds first (Quartz, Spring) or a year last (EventBridge)? {_FIVE}"
    return f"{n} field{'' if n == 1 else 's'}; {_FIVE}"


def _foreign(item: str) -> str | None:
    for pattern, sentence in _FOREIGN:
        if pattern.search(item):
            return f"{sentence}; the UNIX dialect does not know it"
    return None
