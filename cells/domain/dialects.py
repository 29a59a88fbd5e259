"""Cron expressions of other systems, read as those systems document them.

QUARTZ: second minute hour day-of-month month day-of-week [year]; weekdays 1-7 from Sunday; exactly
one of the two day fields is `?`; L, L-n, LW, nW, nL and n#k; ranges may wrap round.
EVENTBRIDGE: minute hour day-of-month month day-of-week year, alone or as `cron(...)`; the same
weekdays; `?`, L, nL, nW and one n#k.

Choices: `nW` does not fire in a month without that day, as a plain n does not. L, W and # stand alone
in their field: both systems leave lists of them undefined.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from cells.domain.cron import parse_cron
from cells.domain.faults import ScheduleError
from cells.domain.fields import DAYS, MONTHS, POINTER, Field, fault, number, parse_field, plain
from cells.domain.job import Dialect
from cells.domain.walker import Cron, DayRule

_ALL_DAYS = frozenset(range(1, 32))
_ALL_WEEKDAYS = frozenset(range(7))
_NEVER = "day-of-month: none of the months (and years) has such a day; it can never fire"
_SPECIAL = re.compile(r"[?#]|(?<![a-z])l|(?<=[0-9])l|(?<=[a-z]{3})l$|(?<=[0-9l])w")


@dataclass(frozen=True, kw_only=True)
class _Grammar:
    """One dialect: its fields, and which of the special signs it has."""

    name: str
    fields: tuple[Field, ...]
    optional: int  # fields at the end that may be left out
    rich: bool  # L-n, LW and ranges that wrap
    shape: str


def _fields(*, wraps: bool, years: Field) -> dict[str, Field]:
    cycle = (lambda n: n) if wraps else (lambda n: 0)
    return {
        "second": Field("second", 0, 59, (), cycle(60)),
        "minute": Field("minute", 0, 59, (), cycle(60)),
        "hour": Field("hour", 0, 23, (), cycle(24)),
        "day-of-month": Field("day-of-month", 1, 31, (), cycle(31)),
        "month": Field("month", 1, 12, MONTHS, cycle(12)),
        "day-of-week": Field("day-of-week", 1, 7, DAYS, cycle(7)),
        "year": years,
    }


def _grammar(
    dialect: Dialect, names: tuple[str, ...], years: Field, *, optional: int, rich: bool
) -> _Grammar:
    known = _fields(wraps=rich, years=years)
    last = " [year]" if optional else " year"
    shape = f"the {dialect} dialect has {' '.join(names[:-1])}{last}"
    return _Grammar(
        name=dialect.value,
        fields=tuple(known[name] for name in names),
        optional=optional,
        rich=rich,
        shape=shape,
    )


_DATE = ("minute", "hour", "day-of-month", "month", "day-of-week", "year")
_QUARTZ = _grammar(Dialect.QUARTZ, ("second", *_DATE), Field("year", 1970, 2099), optional=1, rich=True)
_EVENTBRIDGE = _grammar(Dialect.EVENTBRIDGE, _DATE, Field("year", 1970, 2199), optional=0, rich=False)


def parse_dialect(text: str, dialect: Dialect) -> Cron:
    """Parse an expression of a dialect. Raises `ScheduleError` that names the field, or the dialect
    that it looks like instead."""
    return _PARSERS[dialect](text)


@lru_cache(maxsize=4096)
def parse_quartz(text: str) -> Cron:
    """Six or seven fields, seconds first."""
    expression = plain(text, _QUARTZ.shape)
    _no_foreign_form(expression, _QUARTZ)
    return _parse(expression.split(), _QUARTZ)


@lru_cache(maxsize=4096)
def parse_eventbridge(text: str) -> Cron:
    """Six fields, the year last; with or without `cron(` and `)` around them."""
    expression = plain(text, _EVENTBRIDGE.shape)
    inner = re.fullmatch(r"cron\s*\((.*)\)", expression)
    if inner is not None:
        expression = inner[1].strip(" \t")
    _no_foreign_form(expression, _EVENTBRIDGE)
    return _parse(expression.split(), _EVENTBRIDGE)


_PARSERS: dict[Dialect, Callable[[str], Cron]] = {
    Dialect.UNIX: parse_cron,
    Dialect.QUARTZ: parse_quartz,
    Dialect.EVENTBRIDGE: parse_eventbridge,
}


def _no_foreign_form(expression: str, grammar: _Grammar) -> None:
    if expression.startswith("@"):
        raise ScheduleError(POINTER, f"aliases such as {expression[:20]} are UNIX; {grammar.shape}")
    if re.match(r"(cron|rate|at)\s*\(", expression):
        if grammar is _EVENTBRIDGE:
            raise ScheduleError(POINTER, f"`{expression[:40]}` is not understood; {grammar.shape}")
        raise ScheduleError(POINTER, f"this is EventBridge syntax; {grammar.shape}")


def _parse(texts: list[str], grammar: _Grammar) -> Cron:
    most = len(grammar.fields)
    if not most - grammar.optional <= len(texts) <= most:
        raise ScheduleError(POINTER, _wrong_count(texts, grammar))
    given = dict(zip((field.name for field in grammar.fields), texts, strict=False))
    known = {field.name: field for field in grammar.fields}
    faults: list[tuple[str, str]] = []
    sets: dict[str, frozenset[int]] = {}
    for name, part in given.items():
        if name.startswith("day"):
            continue
        try:
            sets[name] = parse_field(known[name], part, partial(_foreign, grammar))
        except ScheduleError as error:
            faults += error.faults
    rule = _days(given["day-of-month"], given["day-of-week"], known, grammar, faults)
    if faults or rule is None:
        raise ScheduleError.of(faults)
    cron = Cron(
        seconds=sets.get("second", (0,)),
        minutes=sets["minute"],
        hours=sets["hour"],
        months=sets["month"],
        years=None if given.get("year", "*") == "*" else sets["year"],
        rule=rule,
        frequent=given["hour"].startswith("*"),
    )
    if not cron.can_fire:
        raise ScheduleError(POINTER, _NEVER)
    return cron


def _wrong_count(texts: list[str], grammar: _Grammar) -> str:
    n = len(texts)
    shown = f"{n} field{'' if n == 1 else 's'}"
    if n == 5:
        return f"5 fields: this looks like UNIX; {grammar.shape}"
    if n == 7 and grammar is _EVENTBRIDGE:
        return f"7 fields: this looks like QUARTZ (seconds first); {grammar.shape}"
    return f"{shown}; {grammar.shape}"


def _days(
    days: str, weekdays: str, known: dict[str, Field], grammar: _Grammar, faults: list[tuple[str, str]]
) -> DayRule | None:
    if (days == "?") == (weekdays == "?"):
        faults.append((POINTER, _which_days(days, weekdays, grammar)))
        return None
    try:
        if weekdays == "?":
            return _day_of_month(known["day-of-month"], days, grammar)
        return _day_of_week(known["day-of-week"], weekdays, grammar)
    except ScheduleError as error:
        faults += error.faults
        return None


def _which_days(days: str, weekdays: str, grammar: _Grammar) -> str:
    if days == "?":
        return "day-of-month, day-of-week: `?` may stand in one of the two only"
    hint = ""
    if grammar is _QUARTZ and days == weekdays == "*":
        hint = "; this looks like Spring, whose weekdays are numbered as in UNIX"
    return (
        f"day-of-month, day-of-week: exactly one of the two must be `?` in the {grammar.name} dialect{hint}"
    )


def _day_of_month(field: Field, text: str, grammar: _Grammar) -> DayRule:
    if text == "l":
        return DayRule(days=frozenset(), weekdays=_ALL_WEEKDAYS, before_last=frozenset({0}))
    if match := re.fullmatch(r"l-([0-9]{1,3})", text):
        _rich(field, "`L-n` (days before the last)", grammar)
        before = int(match[1])
        if before > 30:
            raise fault(field, f"L-{before} lies before every month's first day")
        return DayRule(days=frozenset(), weekdays=_ALL_WEEKDAYS, before_last=frozenset({before}))
    if text in ("lw", "wl"):
        _rich(field, "`LW` (the last Monday to Friday)", grammar)
        return DayRule(days=frozenset(), weekdays=_ALL_WEEKDAYS, last_weekday=True)
    if match := re.fullmatch(r"([0-9]+)w", text):
        day = number(field, match[1], partial(_foreign, grammar))
        return DayRule(days=frozenset(), weekdays=_ALL_WEEKDAYS, nearest=frozenset({day}))
    if "#" in text:
        raise fault(field, "`#` (the n-th weekday of a month) belongs into day-of-week")
    _alone(field, text)
    return DayRule(days=parse_field(field, text, partial(_foreign, grammar)), weekdays=_ALL_WEEKDAYS)


def _day_of_week(field: Field, text: str, grammar: _Grammar) -> DayRule:
    foreign = partial(_foreign, grammar)
    if text == "l":  # the last day of the week
        return DayRule(days=_ALL_DAYS, weekdays=frozenset({6}))
    if match := re.fullmatch(r"([0-9]+|[a-z]{3})l", text):
        last = number(field, match[1], foreign) - 1
        return DayRule(days=_ALL_DAYS, weekdays=frozenset(), last_of=frozenset({last}))
    if match := re.fullmatch(r"([0-9]+|[a-z]{3})#([0-9]+)", text):
        weekday, n = number(field, match[1], foreign) - 1, int(match[2])
        if not 1 <= n <= 5:
            raise fault(field, f"#{match[2][:20]}: a month has one to five of a weekday")
        return DayRule(days=_ALL_DAYS, weekdays=frozenset(), nth=frozenset({(weekday, n)}))
    if re.search(r"[0-9l]w", text):
        raise fault(field, "`W` (nearest weekday) belongs into day-of-month")
    if text.count("#") > 1:
        raise fault(field, "only one `#` may be used")
    _alone(field, text)
    if re.fullmatch(r"(?:0|[0-9]-)?0(?:-[0-9])?", text):
        raise fault(field, "0 is out of range (1-7): in this dialect 1 is Sunday, 7 is Saturday")
    return DayRule(days=_ALL_DAYS, weekdays=frozenset(n - 1 for n in parse_field(field, text, foreign)))


def _alone(field: Field, text: str) -> None:
    if ("," in text or "/" in text or "-" in text) and _SPECIAL.search(text):
        raise fault(field, f"`{text[:40]}`: `?`, L, W and # stand alone in their field")


def _rich(field: Field, what: str, grammar: _Grammar) -> None:
    if not grammar.rich:
        raise fault(field, f"{what} is QUARTZ syntax; the {grammar.name} dialect does not know it")


def _foreign(grammar: _Grammar, item: str) -> str | None:
    if item == "?":
        return "`?` may stand in day-of-month or day-of-week only"
    if re.fullmatch(r"h(\(.*\))?(/.*)?", item):
        return f"`H` (hashed) is Jenkins syntax; the {grammar.name} dialect does not know it"
    return None


# --- EventBridge's other forms --------------------------------------------------------------
_UNITS = {"minute": 60, "hour": 3600, "day": 86_400}


def eventbridge_rate(text: str) -> int | None:
    """The seconds of `rate(5 minutes)`; None if the text is no rate. Raises `ScheduleError`."""
    match = re.fullmatch(r"rate\s*\((.*)\)", text.strip(" \t").lower())
    if match is None:
        return None
    inner = re.fullmatch(r"\s*([0-9]{1,9})\s+(minute|hour|day)(s?)\s*", match[1])
    if inner is None or int(inner[1]) == 0:
        raise ScheduleError(
            POINTER,
            f"rate({match[1][:40]}) is not understood; write rate(5 minutes), rate(1 hour), rate(7 days)",
        )
    value, unit, plural = int(inner[1]), inner[2], bool(inner[3])
    if plural != (value != 1):
        right = f"rate({value} {unit}{'' if value == 1 else 's'})"
        raise ScheduleError(POINTER, f"EventBridge writes {right}")
    return value * _UNITS[unit]


def eventbridge_at(text: str) -> str | None:
    """The local time of `at(2026-09-28T09:00:00)`; None if the text is no such thing."""
    match = re.fullmatch(r"at\s*\(\s*(.*?)\s*\)", text.strip(" \t"), re.IGNORECASE)
    if match is None:
        return None
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}", match[1]):
        raise ScheduleError(POINTER, f"at({match[1][:40]}) is not understood; write at(2026-09-28T09:00:00)")
    return match[1]
