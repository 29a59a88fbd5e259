"""The grammar that all cron dialects share: a field is a list of numbers, names, ranges, steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from cells.domain.faults import ScheduleError

POINTER = "/schedule/cron"
MAX_LENGTH = 500

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

_ITEM = re.compile(r"(?P<star>\*)|(?P<a>[0-9]+|[a-z]{3})(?:-(?P<b>[0-9]+|[a-z]{3}))?")


class Field(NamedTuple):
    """One field's grammar. `low` to `high` is what `*` stands for."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()  # names[i] stands for low + i
    cycle: int = 0  # ranges may wrap round with this length; 0: they may not
    top: int = 0  # highest number that may be written, where it is not `high`


#: What a dialect says about an item that is not understood, or None if it has nothing to say.
Foreign = Callable[[str], str | None]


def plain(text: str, hint: str) -> str:
    """The text in lower case, without the space around it; refused if it cannot be cron at all."""
    if len(text) > MAX_LENGTH:
        raise ScheduleError(POINTER, f"longer than {MAX_LENGTH} characters")
    strange = next((c for c in text if not (" " <= c <= "~" or c == "\t")), None)
    if strange is not None:
        raise ScheduleError(POINTER, f"only ASCII may be used, found {strange!a}")
    found = text.strip(" \t").lower()
    if not found:
        raise ScheduleError(POINTER, f"empty; {hint}")
    if re.match(r"(cron_)?tz=", found):
        raise ScheduleError(POINTER, "the time zone belongs into `time_zone`, not into the expression")
    return found


def parse_field(field: Field, text: str, foreign: Foreign) -> frozenset[int]:
    """The numbers that a field's text stands for."""
    values: set[int] = set()
    for item in text.split(","):
        if not item:
            raise fault(field, "an item of the list is empty")
        values.update(_parse_item(field, item, foreign))
    return frozenset(values)


def _parse_item(field: Field, item: str, foreign: Foreign) -> list[int]:
    base, slash, step_text = item.partition("/")
    match = _ITEM.fullmatch(base)
    if match is None:
        raise fault(field, _explain(field, item, foreign))
    step = _parse_step(field, step_text, item) if slash else 1
    if match["star"]:
        return list(range(field.low, field.high + 1, step))
    start = number(field, match["a"], foreign)
    if match["b"] is None:
        if not slash:
            return [_fold(field, start)]
        return list(range(_fold(field, start), field.high + 1, step))
    end = number(field, match["b"], foreign)
    if end < start:
        if not field.cycle:
            raise fault(field, f"`{base}` runs backwards; write two ranges")
        end += field.cycle
    return [_fold(field, n) for n in range(start, end + 1, step)]


def _fold(field: Field, n: int) -> int:
    return (n - field.low) % field.cycle + field.low if field.cycle else n


def number(field: Field, text: str, foreign: Foreign) -> int:
    """One number or name of a field."""
    if text in field.names:
        return field.names.index(text) + field.low
    if not text.isdigit():
        raise fault(field, _explain(field, text, foreign))
    top = field.top or field.high
    n = int(text)
    if not field.low <= n <= top:
        raise fault(field, f"{text[:20]} is out of range ({field.low}-{top})")
    return n


def _parse_step(field: Field, text: str, item: str) -> int:
    if not text.isdigit():
        raise fault(field, f"`{item[:40]}` has no number behind its `/`")
    most = field.high - field.low + 1
    step = int(text)
    if step == 0:
        raise fault(field, "a step of 0 never moves")
    if step > most:
        raise fault(
            field,
            f"a step of {text[:20]} leaves the field ({field.low}-{field.high});"
            " steps restart at every field start",
        )
    return step


def _explain(field: Field, item: str, foreign: Foreign) -> str:
    if (sentence := foreign(item)) is not None:
        return sentence
    if field.names and re.match(r"[a-z]", item):
        return f"`{item[:40]}` is no name; use {', '.join(field.names)}"
    numbers = f"numbers {field.low}-{field.top or field.high}"
    return f"`{item[:40]}` is not understood; use {numbers}, lists, ranges, steps or `*`"


def fault(field: Field, detail: str) -> ScheduleError:
    """Something is wrong in a field."""
    return ScheduleError(POINTER, f"{field.name}: {detail}")
