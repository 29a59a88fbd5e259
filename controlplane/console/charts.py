"""Charts of a tenant's minutes: columns and lines in percent, so that they fit any screen. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from controlplane.console.wording import duration, parse

#: How wide a column is, by the scale shown.
STEPS: dict[str, timedelta] = {
    "1h": timedelta(minutes=1),
    "6h": timedelta(minutes=5),
    "24h": timedelta(minutes=15),
    "7d": timedelta(hours=2),
}
#: The end of a run is written down this soon.
WRITTEN_WITHIN = timedelta(seconds=5)
_COUNTS = ("started", "succeeded", "failed", "retried", "cancelled", "skipped")
_ROUND = (1, 2, 5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bin:
    """What happened in one step. Lags: the mean of the minutes' medians (weighted by their runs), and the
    99th percentile of the worst minute; None where nothing started."""

    begin: datetime
    end: datetime
    started: int
    succeeded: int
    failed: int
    retried: int
    cancelled: int
    skipped: int
    lag_p50_ms: float | None
    lag_p99_ms: float | None

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.cancelled

    @property
    def ended_from(self) -> datetime:
        """Since when the runs counted here can have ended: they are counted when that is written down, a
        moment later."""
        return self.begin - WRITTEN_WITHIN

    @property
    def success(self) -> float | None:
        """Percent of what succeeded or failed."""
        counted = self.succeeded + self.failed
        return 100 * self.succeeded / counted if counted else None


def bins(
    minutes: Iterable[Mapping[str, Any]], *, start: datetime, until: datetime, step: timedelta
) -> list[Bin]:
    """All steps from the one that holds `start` to the one that holds `until`, with or without runs."""
    size = int(step.total_seconds())
    first = int(start.timestamp()) // size
    count = int(until.timestamp()) // size - first + 1
    held: list[list[Mapping[str, Any]]] = [[] for _ in range(count)]
    for minute in minutes:
        at = parse(minute["minute"])
        index = int(at.timestamp()) // size - first if at else -1
        if 0 <= index < count:
            held[index].append(minute)
    return [_bin(rows, datetime.fromtimestamp((first + i) * size, UTC), step) for i, rows in enumerate(held)]


def _bin(rows: Sequence[Mapping[str, Any]], begin: datetime, step: timedelta) -> Bin:
    counts = {name: sum(row[name] for row in rows) for name in _COUNTS}
    medians = [(row["lag_p50_ms"], row["started"]) for row in rows if row["lag_p50_ms"] is not None]
    weight = sum(runs for _, runs in medians)
    worst = [row["lag_p99_ms"] for row in rows if row["lag_p99_ms"] is not None]
    return Bin(
        begin=begin,
        end=begin + step,
        lag_p50_ms=sum(ms * runs for ms, runs in medians) / weight if weight else None,
        lag_p99_ms=max(worst, default=None),
        **counts,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One step as a column of counts; sizes in percent of the drawing."""

    bin: Bin
    x: float
    width: float
    good: float
    bad: float
    other: float
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A drawing: columns, or lines as SVG paths in a box of 1000 × 100."""

    top: str  # what the upper edge is
    middle: str
    bottom: str = "0"
    columns: tuple[Column, ...] = ()
    lines: Mapping[str, str] | None = None


def counts_chart(found: Sequence[Bin]) -> Chart:
    """Ended runs by outcome."""
    most = rounded_up(max((each.ended for each in found), default=0))
    width = 100 / max(1, len(found))
    return Chart(
        top=f"{most:,}".replace(",", "\u202f"),
        middle=f"{most / 2:g}",
        columns=tuple(
            Column(
                bin=each,
                x=round(i * width, 3),
                width=round(width * 0.82, 3),
                good=round(each.succeeded / most * 100, 2),
                bad=round(each.failed / most * 100, 2),
                other=round(each.cancelled / most * 100, 2),
                title=f"{each.succeeded} succeeded, {each.failed} failed, {each.cancelled} cancelled",
            )
            for i, each in enumerate(found)
        ),
    )


def success_chart(found: Sequence[Bin]) -> Chart:
    """Percent of runs that succeeded. The lower edge is 0, or 90 where all is above it."""
    values = [each.success for each in found]
    low = 90.0 if min((v for v in values if v is not None), default=100.0) >= 90 else 0.0
    return Chart(
        top="100 %",
        middle=f"{(100 + low) / 2:g} %",
        bottom=f"{low:g} %",
        lines={"good": line([None if v is None else (v - low) / (100 - low) for v in values])},
    )


def lag_chart(found: Sequence[Bin]) -> Chart:
    """How late runs started: start minus due time."""
    most = rounded_up(max((each.lag_p99_ms or 0.0 for each in found), default=0.0))
    return Chart(
        top=duration(most),
        middle=duration(most / 2),
        lines={
            "p99": line([None if each.lag_p99_ms is None else each.lag_p99_ms / most for each in found]),
            "p50": line([None if each.lag_p50_ms is None else each.lag_p50_ms / most for each in found]),
        },
    )


def rounded_up(value: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50, …"""
    size = 1
    while True:
        for digit in _ROUND:
            if digit * size >= value:
                return digit * size
        size *= 10


def line(shares: Sequence[float | None]) -> str:
    """A path through shares of the height, one per step; steps without a value break it. A step that
    stands alone is a short stroke."""
    width = 1000 / max(1, len(shares))
    path: list[str] = []
    drawing = False
    for i, share in enumerate(shares):
        if share is None:
            drawing = False
            continue
        x, y = (i + 0.5) * width, 100 - share * 100
        alone = not drawing and (i + 1 == len(shares) or shares[i + 1] is None)
        if alone:
            path.append(f"M{x - width / 3:.1f} {y:.1f}H{x + width / 3:.1f}")
        else:
            path.append(f"{'L' if drawing else 'M'}{x:.1f} {y:.1f}")
        drawing = True
    return "".join(path)
