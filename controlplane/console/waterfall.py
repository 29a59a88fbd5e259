"""A run's time, attempt by attempt, on one line from when it was due to its end. Pure geometry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from controlplane.console.wording import STATES, duration, parse

#: Narrower pieces would not be seen (percent).
_THINNEST = 0.35


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """One stretch: what it was, and where it lies (percent)."""

    part: str  # queue, slot, run, retries, dead_letter
    look: str  # how a call ended; empty for waits
    title: str
    begin: datetime
    end: datetime
    x: float = 0.0
    width: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One attempt."""

    number: int  # within its series
    pieces: tuple[Piece, ...]
    running: bool
    took: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Waterfall:
    """All attempts on the same scale."""

    rows: tuple[Row, ...]
    total: str
    middle: str  # what half of the width is


def waterfall(run: Mapping[str, Any], now: datetime) -> Waterfall | None:
    """None while nothing has been tried."""
    due = parse(run["due_at"])
    if due is None:
        return None
    rows = _ended(run["attempts"], due)
    under_way = _under_way(run, rows, due, now)
    if under_way:
        rows.append(under_way)
    if not rows:
        return None
    whole = max(max(piece.end for row in rows for piece in row.pieces) - due, timedelta(milliseconds=1))
    return Waterfall(
        rows=tuple(
            replace(row, pieces=tuple(_placed(piece, due, whole) for piece in row.pieces)) for row in rows
        ),
        total=duration(whole / timedelta(milliseconds=1)),
        middle=duration(whole / timedelta(milliseconds=2)),
    )


def _ended(attempts: Sequence[Mapping[str, Any]], due: datetime) -> list[Row]:
    rows = []
    ready = due
    series = 1
    for attempt in attempts:
        finished = parse(attempt["finished_at"])
        if finished is None:
            continue
        claimed = parse(attempt["claimed_at"]) or finished
        started = parse(attempt["started_at"])
        redriven = attempt.get("series", 1) > series
        series = attempt.get("series", 1)
        pieces = _waits(ready, claimed, started or finished, redriven=redriven)
        again = attempt.get("retry_in_ms") is not None
        outcome = "TERMINAL" if attempt["outcome"] == "RETRYABLE" and not again else attempt["outcome"]
        word, look, _ = STATES.get(outcome, (outcome, "mute", ""))
        if started is not None:
            pieces.append(_piece("run", started, finished, f"Call, {word.lower()}", look))
        ready = finished
        if again:
            ready = finished + timedelta(milliseconds=attempt["retry_in_ms"])
            pieces.append(_piece("retries", finished, ready, "Wait before the next attempt"))
        took = duration((finished - (started or claimed)) / timedelta(milliseconds=1))
        rows.append(Row(number=attempt["number"], pieces=tuple(pieces), running=False, took=took))
    return rows


def _under_way(run: Mapping[str, Any], rows: Sequence[Row], due: datetime, now: datetime) -> Row | None:
    claimed, started = parse(run["claimed_at"]), parse(run["started_at"])
    if run["state"] != "RUNNING" or claimed is None:
        return None
    ready = max([due, *(piece.end for row in rows for piece in row.pieces)])
    last = run["attempts"][-1] if run["attempts"] else {}
    redriven = bool(last) and (run.get("series") or 1) > last.get("series", 1)
    pieces = _waits(min(ready, claimed), claimed, started or now, redriven=redriven)
    if started is not None:
        pieces.append(_piece("run", started, max(now, started), "Call, under way", "live"))
    took = duration((now - claimed) / timedelta(milliseconds=1))
    return Row(number=run["attempt"], pieces=tuple(pieces), running=True, took=took)


def _waits(ready: datetime, claimed: datetime, started: datetime, *, redriven: bool) -> list[Piece]:
    found = []
    if claimed > ready and redriven:
        found.append(_piece("dead_letter", ready, claimed, "Among the dead letters, until it was redriven"))
    elif claimed > ready:
        found.append(_piece("queue", ready, claimed, "Quota and queue"))
    if started > claimed:
        found.append(_piece("slot", claimed, started, "Waited for a slot at the target"))
    return found


def _piece(part: str, begin: datetime, end: datetime, what: str, look: str = "") -> Piece:
    end = max(begin, end)
    said = duration((end - begin) / timedelta(milliseconds=1))
    return Piece(part=part, look=look, title=f"{what}: {said}", begin=begin, end=end)


def _placed(piece: Piece, start: datetime, whole: timedelta) -> Piece:
    x = min(max((piece.begin - start) / whole * 100, 0.0), 100 - _THINNEST)
    width = max(_THINNEST, min((piece.end - start) / whole * 100, 100.0) - x)
    return replace(piece, x=round(x, 3), width=round(width, 3))
