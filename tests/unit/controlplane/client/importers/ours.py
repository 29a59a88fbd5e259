"""When a translated schedule fires here: the cell's own rules, asked from outside."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from cells.domain.job import Dialect, Dst, Gap, Overlap, Schedule, ScheduleType
from cells.domain.schedule import compile_schedule, normalise


def schedule_of(document: Mapping[str, Any]) -> Schedule:
    """The document as the cell reads it."""
    members = {name: value for name, value in document.items() if name not in ("type", "dst", "dialect")}
    dst = document.get("dst", {})
    return Schedule(
        type=ScheduleType(document["type"]),
        dialect=Dialect(document.get("dialect", "UNIX")),
        dst=Dst(gap=Gap(dst.get("gap", "SHIFT")), overlap=Overlap(dst.get("overlap", "FIRST"))),
        **members,
    )


def fires(document: Mapping[str, Any], *, start: datetime, until: datetime, most: int) -> list[datetime]:
    """The first `most` instants strictly after `start` and before `until`."""
    compiled = compile_schedule(normalise(schedule_of(document), start))
    found: list[datetime] = []
    occurrence = compiled.next(start)
    while occurrence is not None and occurrence.at < until and len(found) < most:
        found.append(occurrence.at)
        occurrence = compiled.next(occurrence.at)
    return found
