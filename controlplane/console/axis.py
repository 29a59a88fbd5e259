"""The time axis: past to the left, now as a line, next to the right. Pure geometry.

Positions are percentages of the width, so that the drawing fits any screen without a script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

#: Where an instant stands, in percent of the width.
Position = Callable[[datetime], float]

#: Where "now" stands.
NOW_AT = 0.4
#: Narrower marks would not be seen (percent).
_THINNEST = 0.3

#: What the scale controls offer: name to the whole span.
SCALES: dict[str, timedelta] = {
    "10m": timedelta(minutes=10),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
#: A span of its own: from the first to the last thing that is shown.
FIT = "fit"
_STEPS_S = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10800,
    21600,
    43200,
    86400,
    2 * 86400,
    5 * 86400,
    7 * 86400,
    *(14 * 86400, 30 * 86400, 91 * 86400, 365 * 86400),
)
_MOST_TICKS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    """A labelled line of the scale."""

    x: float
    label: str
    day: str  # set where a new day begins


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """A coming occurrence."""

    at: datetime
    title: str
    href: str = ""
    x: float = 0.0
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A run: from when it was scheduled, over its delay, to its end."""

    scheduled: datetime
    started: datetime | None
    ended: datetime | None
    state: str
    title: str
    href: str = ""
    delay: str = ""  # what delayed it most: window, retries, quota, queue, slot
    lane: int = 0
    x: float = 0.0
    wait: float = 0.0  # width of the delay
    run_x: float = 0.0
    width: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """Everything a drawing needs."""

    scale: str
    start: datetime
    end: datetime
    now: datetime
    now_x: float
    ticks: Sequence[Tick]
    due: Sequence[Due] = ()
    bars: Sequence[Bar] = ()
    scales: Sequence[str] = field(default_factory=lambda: tuple(SCALES))

    def x(self, at: datetime) -> float:
        """Where an instant stands, in percent; beyond 0 and 100 outside the span."""
        return round((at - self.start) / (self.end - self.start) * 100, 3)

    @property
    def start_ms(self) -> int:
        return round(self.start.timestamp() * 1000)

    @property
    def end_ms(self) -> int:
        return round(self.end.timestamp() * 1000)

    @property
    def summary(self) -> str:
        """The drawing in words, for those who do not see it."""
        return f"{len(self.bars)} runs before now, {len(self.due)} occurrences to come"


def scale_for(dates: Iterable[datetime], now: datetime, *, now_at: float = NOW_AT, least: int = 3) -> str:
    """The smallest scale that shows the nearest `least` coming instants; an hour if there are none."""
    coming = sorted(at for at in dates if at > now)[:least]
    if not coming:
        return "1h"
    for name, span in SCALES.items():
        if coming[-1] - now < span * (1 - now_at) * 0.95:
            return name
    return list(SCALES)[-1]


def build(
    *,
    now: datetime,
    scale: str,
    zone: ZoneInfo,
    due: Iterable[Due] = (),
    bars: Iterable[Bar] = (),
    now_at: float = NOW_AT,
) -> Axis:
    """Place everything that lies within the scale's span."""
    span = SCALES[scale]
    start = now - span * now_at
    end = start + span

    def x(at: datetime) -> float:
        return round((at - start) / span * 100, 3)

    placed_due = [replace(item, x=x(item.at)) for item in due if start <= item.at <= end]
    return Axis(
        scale=scale,
        start=start,
        end=end,
        now=now,
        now_x=x(now),
        ticks=_ticks(start, end, zone, x),
        due=placed_due,
        bars=_place_bars(bars, start, end, now, x),
    )


def between(*, start: datetime, end: datetime, now: datetime, zone: ZoneInfo) -> Axis:
    """An empty axis over a span of its own, for drawings that place things themselves with `x`."""
    whole = max(end - start, timedelta(milliseconds=1))

    def x(at: datetime) -> float:
        return round((at - start) / whole * 100, 3)

    return Axis(
        scale=FIT, start=start, end=start + whole, now=now, now_x=x(now),
        ticks=_ticks(start, start + whole, zone, x), scales=(FIT, *SCALES),
    )  # fmt: skip


def _place_bars(bars: Iterable[Bar], start: datetime, end: datetime, now: datetime, x: Position) -> list[Bar]:
    placed: list[Bar] = []
    lanes: list[float] = []
    for bar in sorted(bars, key=lambda item: item.scheduled):
        begun = bar.started or bar.ended or now
        ended = bar.ended or max(now, begun)
        if ended < start or bar.scheduled > end:
            continue
        left = min(max(0.0, x(bar.scheduled)), 100.0 - _THINNEST)
        run_x = min(max(left, x(begun)), 100.0 - _THINNEST)
        width = max(_THINNEST, min(x(ended), 100.0) - run_x)
        lane = next((i for i, free in enumerate(lanes) if free <= left), len(lanes))
        if lane == len(lanes):
            lanes.append(0.0)
        lanes[lane] = run_x + width + _THINNEST
        placed.append(
            replace(
                bar,
                lane=lane % 4,
                x=left,
                wait=round(max(0.0, run_x - left), 3),
                run_x=round(run_x, 3),
                width=round(width, 3),
            )
        )
    return placed


def _clock(wall: datetime, step: float) -> str:
    if step >= 60:
        return f"{wall:%H:%M}"
    return f"{wall:%H:%M:%S}" if step >= 1 else f"{wall:%S}.{wall.microsecond // 100_000} s"


def _ticks(start: datetime, end: datetime, zone: ZoneInfo, x: Position) -> list[Tick]:
    span = (end - start).total_seconds()
    step = next((s for s in _STEPS_S if span / s <= _MOST_TICKS), _STEPS_S[-1])
    local = start.astimezone(zone)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    # Walk in local wall time: labels are round numbers there, whatever the zone's offset.
    index = int((local.replace(tzinfo=None) - midnight).total_seconds() // step) + 1
    ticks: list[Tick] = []
    previous = ""
    for i in range(index, index + 2 * _MOST_TICKS):
        wall = midnight + timedelta(seconds=i * step)
        at = wall.replace(tzinfo=zone)
        if at >= end:
            break
        day = f"{wall:%a} {wall.day} {wall:%b}"
        position = x(at)
        if position < 3 or position > 97:
            previous = day
            continue
        label = day if step >= 86400 else _clock(wall, step)
        ticks.append(
            Tick(
                x=position,
                label=label,
                day=day if step < 86400 and day != previous and wall.hour == 0 else "",
            )
        )
        previous = day
    return ticks
