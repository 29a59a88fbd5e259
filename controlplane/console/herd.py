"""The herd map: how many occurrences are due in each minute of the coming day. Pure geometry.

A row is an hour, a column a minute: what starts at round times stands out as a column, what is
spread is even.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from controlplane.console.wording import parse

#: This hour, which is partly over, and the 24 after it.
HOURS = 25
_LEVELS = 5
_BUSIEST = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Minute:
    """A minute with occurrences: its place (column in percent, row as an index) and its level (1 to 5)."""

    at: datetime
    until: datetime
    count: int
    row: int
    x: float
    level: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """An hour."""

    label: str
    total: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Herd:
    """The whole map."""

    minutes: tuple[Minute, ...]
    rows: tuple[Row, ...]
    total: int
    most: int
    busiest: tuple[Minute, ...]
    scale: tuple[tuple[int, int], ...]  # (level, the fewest occurrences of it)
    now_x: float


def herd(counts: Iterable[Mapping[str, Any]], *, now: datetime, zone: ZoneInfo) -> Herd:
    """From `{minute, count}` items; what lies outside is left out."""
    local = now.astimezone(zone)
    start = now - timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
    found: dict[int, int] = {}
    for item in counts:
        at = parse(item["minute"])
        index = int((at - start) // timedelta(minutes=1)) if at else -1
        if 0 <= index < HOURS * 60 and item["count"] > 0:
            found[index] = found.get(index, 0) + int(item["count"])
    most = max(found.values(), default=0)
    low = _usual(found)
    minutes = tuple(
        Minute(
            at=start + timedelta(minutes=index),
            until=start + timedelta(minutes=index + 1),
            count=count,
            row=index // 60,
            x=round(index % 60 / 60 * 100, 3),
            level=level(count, low, most),
        )
        for index, count in sorted(found.items())
    )
    rows = tuple(
        Row(
            label=f"{(start + timedelta(hours=hour)).astimezone(zone):%H:%M}",
            total=sum(minute.count for minute in minutes if minute.row == hour),
        )
        for hour in range(HOURS)
    )
    return Herd(
        minutes=minutes,
        rows=rows,
        total=sum(found.values()),
        most=most,
        busiest=tuple(sorted(minutes, key=lambda minute: (-minute.count, minute.at))[:_BUSIEST]),
        scale=_scale(low, most),
        now_x=round((local.minute + local.second / 60) / 60 * 100, 3),
    )


def _usual(found: Mapping[int, int]) -> int:
    """What even the quiet minutes have: nine in ten of the day have at least as much."""
    day = 24 * 60
    quiet = sorted(found.values())
    index = day // 10 - max(0, day - len(quiet))  # minutes without any come first
    return quiet[index] if 0 <= index < len(quiet) else 1


def level(count: int, low: int, most: int) -> int:
    """1 to 5, in equal ratios of what stands above `low`: a herd of thousands does not hide one of
    dozens, and a day that is even all through is pale."""
    if count <= low or most <= low:
        return 1
    return min(_LEVELS, 1 + int(_LEVELS * math.log(count - low + 1) / math.log(most - low + 1) * 0.9999))


def _scale(low: int, most: int) -> tuple[tuple[int, int], ...]:
    first: dict[int, int] = {}
    for power in range(_LEVELS + 1):
        near = low + round((most - low + 1) ** (power / _LEVELS)) - 1 if most else 0
        for count in range(max(1, near - 1), near + 3):
            if count <= most:
                step = level(count, low, most)
                first[step] = min(first.get(step, count), count)
    return tuple(sorted(first.items()))
