"""Time zones: the pinned tzdata package, what a wall time means, and the next transitions."""

from __future__ import annotations

import difflib
import enum
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, cast
from zoneinfo import ZoneInfo

import tzdata

from cells.domain.faults import ScheduleError

# zoneinfo prefers the host's data; an empty search path leaves only the pinned package, so that
# every host of an installation computes the same instants.
zoneinfo.reset_tzpath(to=())
ZoneInfo.clear_cache()

#: Logged and stored; a change recomputes stored instants.
TZDATA_VERSION: str = tzdata.IANA_VERSION

#: The names that may be used. `Factory` is the placeholder of an unset clock.
NAMES: frozenset[str] = frozenset(zoneinfo.available_timezones()) - {"Factory", "localtime"}

#: Instants outside are refused or clamped: every local reading, and every window added to one,
#: stays inside what datetime can hold.
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 1, 1, tzinfo=UTC)

_STEP = timedelta(days=1)
_SECOND = timedelta(seconds=1)
#: How far ahead `transitions` looks. Zones without rules have none; Morocco's lie months apart.
_HORIZON = timedelta(days=5 * 366)


@lru_cache(maxsize=1024)
def zone(name: str, pointer: str = "/schedule/time_zone") -> ZoneInfo:
    """The zone of an IANA name, or a `ScheduleError` that suggests one."""
    if name in NAMES:
        return ZoneInfo(name)
    shown = f"{name[:60]!a}"
    if name[:1] in "+-" or name[:3].upper() in ("UTC", "GMT"):
        raise ScheduleError(
            pointer,
            f"{shown} is a fixed offset, not an IANA time zone; use a name such as Europe/Berlin, or UTC",
        )
    lowered = {n.lower(): n for n in NAMES}
    asked = name[:60].lower().replace(" ", "_")
    near = difflib.get_close_matches(asked, lowered, n=1, cutoff=0.8)
    near += sorted(known for known in lowered if asked and known.endswith(f"/{asked}"))
    hint = f"; did you mean {lowered[near[0]]}?" if near else "; use a name such as Europe/Berlin, or UTC"
    raise ScheduleError(pointer, f"{shown} is not an IANA time zone{hint}")


class Kind(enum.Enum):
    """What a wall time is on its day."""

    PLAIN = "plain"  # happens once
    GAP = "gap"  # does not happen: the clock jumps over it
    OVERLAP = "overlap"  # happens twice


class Reading(NamedTuple):
    """What a wall time means. PLAIN: `first` and `second` are the same instant.
    GAP: both are the first instant after the gap. `resume` is the first wall time at or after
    the gap or overlap that is ordinary again."""

    kind: Kind
    first: datetime
    second: datetime
    resume: datetime


def read_wall(tz: ZoneInfo, wall: datetime) -> Reading:
    """Classify a naive wall time by its offsets at fold 0 and fold 1."""
    before, after = offset_of(tz, wall, 0), offset_of(tz, wall, 1)
    if before == after:
        instant = (wall - before).replace(tzinfo=UTC)
        return Reading(Kind.PLAIN, instant, instant, wall)
    if before > after:
        first, second = (wall - before).replace(tzinfo=UTC), (wall - after).replace(tzinfo=UTC)
        turn = find_change(tz, first, second)
        return Reading(Kind.OVERLAP, first, second, turn.replace(tzinfo=None) + before)
    turn = find_change(tz, (wall - after).replace(tzinfo=UTC), (wall - before).replace(tzinfo=UTC))
    return Reading(Kind.GAP, turn, turn, turn.replace(tzinfo=None) + after)


def offset_of(tz: ZoneInfo, wall: datetime, fold: int) -> timedelta:
    """The offset that a naive wall time has on its first (0) or second (1) reading."""
    return cast(timedelta, wall.replace(tzinfo=tz, fold=fold).utcoffset())


def offset_at(tz: ZoneInfo, at: datetime) -> timedelta:
    """The offset from UTC in force at an instant."""
    return cast(timedelta, at.astimezone(tz).utcoffset())


def find_change(tz: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """The first whole second in (low, high] with another offset than at `low`, by bisection."""
    start = offset_at(tz, low)
    while high - low > _SECOND:
        middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
        if offset_at(tz, middle) == start:
            low = middle
        else:
            high = middle
    return high


class Change(NamedTuple):
    """The instant at which an offset changes, and both offsets."""

    at: datetime
    before: timedelta
    after: timedelta


def changes(tz: ZoneInfo, after: datetime, until: datetime) -> Iterator[Change]:
    """Every offset change in (after, until], in order. Work: one look-up a day."""
    # Offsets change at whole seconds, so nothing is lost by walking on them.
    low, until = after.replace(microsecond=0), until.replace(microsecond=0)
    before = offset_at(tz, low)
    while low < until:
        high = min(low + _STEP, until)
        now = offset_at(tz, high)
        if now != before:
            yield Change(find_change(tz, low, high), before, now)
        low, before = high, now


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneTransition:
    """A jump of the local clock, for people."""

    at: datetime
    from_offset: str  # `+01:00`
    to_offset: str
    kind: str  # gap | overlap
    local: str  # what the clock shows at `at`, after the jump


def transitions(zone_name: str, after: datetime, count: int = 2) -> list[ZoneTransition]:
    """The next `count` jumps of a zone's clock, as far as five years ahead."""
    tz = zone(zone_name)
    start = min(max(after, EARLIEST), LATEST)
    found: list[ZoneTransition] = []
    for change in changes(tz, start, min(start, LATEST - _HORIZON) + _HORIZON):
        if len(found) == count:
            break
        found.append(
            ZoneTransition(
                at=change.at,
                from_offset=offset_text(change.before),
                to_offset=offset_text(change.after),
                kind=(Kind.GAP if change.after > change.before else Kind.OVERLAP).value,
                local=to_local(change.at, zone_name),
            )
        )
    return found


def offset_text(offset: timedelta) -> str:
    """`+05:30`; with seconds where a historical offset has them."""
    sign = "-" if offset < timedelta(0) else "+"
    seconds = int(abs(offset).total_seconds())
    text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}"
    return f"{text}:{seconds % 60:02}" if seconds % 60 else text


def to_local(at: datetime, zone_name: str | None) -> str:
    """RFC 3339 with the zone's offset at that instant (UTC where there is no zone)."""
    return at.astimezone(zone(zone_name) if zone_name else UTC).isoformat(timespec="seconds")
