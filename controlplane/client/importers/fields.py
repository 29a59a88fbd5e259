"""Cron fields as cronie and EventBridge write them: which numbers they stand for. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from controlplane.client.importers.plan import CannotSay

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

_ITEM = re.compile(r"(?P<star>\*)|(?P<first>\d+|[a-z]{3})(?:-(?P<last>\d+|[a-z]{3}))?", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One field of a dialect. `names[i]` stands for `low + i`; `open_step`: `a/n` means a to high."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    top: int | None = None  # the highest number that may be written, where that is not `high`
    open_step: bool = False


def numbers(field: Field, text: str) -> frozenset[int]:
    """The numbers a field matches. Raises `CannotSay`."""
    found: set[int] = set()
    for item in text.lower().split(","):
        found.update(_item(field, item))
    return frozenset(found)


def _item(field: Field, item: str) -> range:
    base, slash, step_text = item.partition("/")
    match = _ITEM.fullmatch(base)
    if match is None:
        raise CannotSay(f"{field.name}: `{item}` is not understood")
    step = 1
    if slash:
        if not (step_text.isascii() and step_text.isdigit() and int(step_text) > 0):
            raise CannotSay(f"{field.name}: `{item}` has no number above 0 behind its `/`")
        step = int(step_text)
    if match["star"]:
        return range(field.low, field.high + 1, step)
    first = _number(field, match["first"])
    if match["last"] is not None:
        last = _number(field, match["last"])
        if field.names == WEEKDAYS and match["last"] == "sun" and field.low == 0:
            last = 7  # sat-sun
        if last < first:
            raise CannotSay(f"{field.name}: `{base}` runs backwards")
        return range(first, last + 1, step)
    if not slash:
        return range(first, first + 1)
    if not field.open_step:
        raise CannotSay(f"{field.name}: `{item}`: a step needs a range or `*` before it")
    return range(first, field.high + 1, step)


def _number(field: Field, text: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.low
    if not text.isdigit():
        raise CannotSay(f"{field.name}: `{text}` is no name of this field")
    number = int(text)
    top = field.high if field.top is None else field.top
    if not field.low <= number <= top:
        raise CannotSay(f"{field.name}: {number} is not in {field.low}-{top}")
    return number


def shown(field: Field, text: str) -> str:
    """The field in our dialect: as it was written, but for steps longer than the field. Those match
    where they begin, here they are refused; the field's own length says the same, and keeps a `*` in
    its place, which decides how the two day fields go together."""
    numbers(field, text)
    size = field.high - field.low + 1
    return re.sub(r"/(\d+)", lambda step: f"/{min(int(step[1]), size)}", text.lower())
