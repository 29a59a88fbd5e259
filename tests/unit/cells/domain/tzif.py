"""The instants at which real clocks jump: from the zone files, and by watching the rules."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import NamedTuple
from zoneinfo import ZoneInfo

_HEADER = struct.Struct(">4sc15x6I")


class Jump(NamedTuple):
    """A change of a zone's offset. All in seconds."""

    at: int  # since 1970
    before: int
    after: int


@cache
def names() -> tuple[str, ...]:
    """All zones of the package."""
    listed = resources.files("tzdata").joinpath("zones").read_text().split()
    return tuple(name for name in listed if name != "Factory")


@cache
def jumps(name: str) -> tuple[Jump, ...]:
    """Every change of a zone's offset that its file lists. What its closing rule generates
    (for most zones: everything from some year on) is not among them."""
    raw = resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    _, _, isut, isstd, leap, times, types, chars = _HEADER.unpack_from(raw)
    # The first block is the 32-bit one; the second has the same layout with 64-bit times.
    start = _HEADER.size + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    _, _, _, _, _, times, types, _ = _HEADER.unpack_from(raw, start)
    start += _HEADER.size
    instants = struct.unpack_from(f">{times}q", raw, start)
    kinds = raw[start + times * 8 : start + times * 9]
    offsets = [struct.unpack_from(">i", raw, start + times * 9 + number * 6)[0] for number in range(types)]
    found, before = [], offsets[0] if offsets else 0
    for at, kind in zip(instants, kinds, strict=True):
        if offsets[kind] != before:
            found.append(Jump(at, before, offsets[kind]))
        before = offsets[kind]
    return tuple(found)


@cache
def watched(name: str) -> tuple[Jump, ...]:
    """Every change of a zone's offset from 2024 to 2027, by looking at its clock each hour and
    then each minute."""
    tz, found = ZoneInfo(name), []

    def offset(at: int) -> int:
        local = datetime.fromtimestamp(at, UTC).astimezone(tz)
        return int(local.utcoffset().total_seconds())

    start, stop = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2024, 2028))
    before = offset(start)
    for hour in range(start, stop, 3600):
        if offset(hour + 3600) != before:
            at = next(m for m in range(hour, hour + 3601, 60) if offset(m) != before)
            found.append(Jump(at, before, offset(at)))
            before = offset(at)
    return tuple(found)
