"""A workflow's steps as lines under the time axis. Pure geometry, in percent of the width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cells.domain.workflow.keys import split_key
from controlplane.console.axis import FIT, SCALES, Axis, between, build
from controlplane.console.wording import duration, parse
from controlplane.console.workflow_words import KINDS, STEP_STATES, is_open

#: Narrower pieces would not be seen (percent).
_THINNEST = 0.4
#: Where "now" stands on the scales that all pages share: a workflow's page looks back.
_NOW_AT = 0.85
_LEAST = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """One stretch of a line: queue, retries, wait, timer, run, undo or point."""

    part: str
    look: str
    title: str
    x: float
    width: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One step."""

    step: str
    kind: str
    what: str
    word: str
    look: str
    sign: str
    depth: int
    pieces: tuple[Piece, ...]
    due: float | None  # where its timer, or its next attempt, will be
    due_at: datetime | None
    begun: datetime
    took: str
    attempt: int | None
    run_id: str | None
    child: str | None
    error: str | None
    compensates: str | None
    key: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines:
    """All steps of an execution on one scale."""

    axis: Axis
    lines: tuple[Line, ...]
    now_shown: bool
    before: int  # lines that ended before the span begins

    @property
    def summary(self) -> str:
        """The drawing in words."""
        return f"{len(self.lines)} steps"


def draw(
    workflow: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
    *,
    now: datetime,
    zone: ZoneInfo,
    scale: str = FIT,
    around: Mapping[str, tuple[str, ...]] | None = None,
) -> Lines:
    """`around`: the steps around each one, by id, where the definition is known."""
    begun = parse(workflow["started_at"]) or now
    closed = parse(workflow["closed_at"])
    axis = _axis(steps, begun, closed, now, zone, scale)
    ends = {step["step"]: parse(step["ended_at"]) or closed or now for step in steps}
    around = around or {}
    lines = tuple(
        _line(step, axis, _end(step, steps, ends, around), closed, around, is_open(workflow["status"]))
        for step in steps
    )
    return Lines(
        axis=axis,
        lines=lines,
        now_shown=0 <= axis.now_x <= 100,
        before=sum(ends[step["step"]] < axis.start for step in steps),
    )


def _axis(
    steps: Sequence[Mapping[str, Any]],
    begun: datetime,
    closed: datetime | None,
    now: datetime,
    zone: ZoneInfo,
    scale: str,
) -> Axis:
    if scale in SCALES:
        return build(now=now, scale=scale, zone=zone, now_at=_NOW_AT)
    ends = [at for step in steps if (at := parse(step["ended_at"])) is not None]
    last = max([closed or now, *ends])
    whole = max(last - begun, _LEAST)
    if closed is None:
        # Room for timers, as long as they do not squeeze what has happened.
        coming = [at - begun for step in steps if (at := _coming(step)) is not None and at > now]
        whole = max([whole * 1.06, *(length * 1.04 for length in coming if length < whole * 2)])
    return between(start=begun, end=begun + whole, now=now, zone=zone)


def _coming(step: Mapping[str, Any]) -> datetime | None:
    if step["state"] != "OPEN":
        return None
    run = step["run"] or {}
    return parse(step["fires_at"]) or parse(run.get("next_attempt_at"))


def _end(
    step: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
    ends: Mapping[str, datetime],
    around: Mapping[str, tuple[str, ...]],
) -> datetime:
    """When it ended; of a group when the last one inside did."""
    if step["state"] != "GROUP":
        return ends[step["step"]]
    name, index = split_key(step["step"])
    inner = [
        ends[other["step"]]
        for other in steps
        if other["state"] != "GROUP" and _is_inside(other["step"], name, index, around)
    ]
    return max(inner, default=parse(step["started_at"]) or ends[step["step"]])


def _is_inside(key: str, group: str, index: tuple[int, ...], around: Mapping[str, tuple[str, ...]]) -> bool:
    name, own = split_key(key)
    return group in around.get(name, ()) and own[: len(index)] == index


def _line(
    step: Mapping[str, Any],
    axis: Axis,
    end: datetime,
    closed: datetime | None,
    around: Mapping[str, tuple[str, ...]],
    open_: bool,
) -> Line:
    begun = parse(step["started_at"]) or axis.start
    run = step["run"] or {}
    state = _state(step, open_)
    word, look, sign = STEP_STATES.get(state, (state.capitalize(), "mute", "○"))
    name, _ = split_key(step["step"])
    coming = _coming(step) if open_ else None
    point = state == "SKIPPED" or step["kind"] == "failed"
    return Line(
        step=step["step"],
        kind=step["kind"],
        what=f"undoes {step['compensates']}"
        if step["compensates"]
        else KINDS.get(step["kind"], step["kind"]),
        word=word,
        look=look,
        sign=sign,
        depth=min(4, len(around.get(name, ()))),
        pieces=tuple(_pieces(step, axis, begun, end, look, point)),
        due=axis.x(coming) if coming is not None and axis.start <= coming <= axis.end else None,
        due_at=coming,
        begun=begun,
        took="" if point else duration((end - begun) / timedelta(milliseconds=1)),
        attempt=run.get("attempt"),
        run_id=run.get("run_id"),
        child=step["child_workflow_id"],
        error=step["error"],
        compensates=step["compensates"],
        key=step["idempotency_key"],
    )


def _state(step: Mapping[str, Any], open_: bool) -> str:
    state = str(step["state"])
    if state == "OPEN":
        if not open_:
            return "ENDED"
        waits = step["kind"] in ("wait", "timer") or (step["run"] or {}).get("state") in (
            "READY",
            "RETRY_WAIT",
        )
        return "WAITING" if waits else "OPEN"
    return "UNKNOWN" if state == "FAILED" and not step["outcome_known"] else state


def _pieces(
    step: Mapping[str, Any], axis: Axis, begun: datetime, end: datetime, look: str, point: bool
) -> list[Piece]:
    if point:
        found = [("point", begun, begun, look)]
    elif step["state"] == "GROUP":
        found = [("group", begun, end, look)]
    elif step["kind"] in ("wait", "timer"):
        found = [(step["kind"], begun, end, look)]
    else:
        found = _worked(step, begun, end, look)
    placed = (_placed(part, from_, until, shade, axis) for part, from_, until, shade in found)
    return [piece for piece in placed if piece is not None]


def _worked(
    step: Mapping[str, Any], begun: datetime, end: datetime, look: str
) -> list[tuple[str, datetime, datetime, str]]:
    """Until its last attempt began it waited; where that was not the first one, others lie in between."""
    run = step["run"]
    part = "undo" if step["compensates"] else "run"
    if run is None:
        return [(part, begun, end, look)]
    wait = "retries" if run["attempt"] > 1 else "queue"
    if run["waited_ms"] is None:
        return [(wait, begun, end, "")]
    started = min(end, begun + timedelta(milliseconds=run["waited_ms"]))
    if run["state"] == "RETRY_WAIT":
        return [("retries", begun, end, "")]
    return (
        [(wait, begun, started, ""), (part, started, end, look)]
        if started > begun
        else [(part, begun, end, look)]
    )


_TITLES = {
    "queue": "Waited for somebody to begin",
    "retries": "Earlier attempts, and the waits between them",
    "wait": "Waited for a signal",
    "timer": "Slept",
    "run": "Worked on",
    "undo": "Undone",
    "group": "From the first to the last inside",
    "point": "At",
}


def _placed(part: str, begin: datetime, end: datetime, look: str, axis: Axis) -> Piece | None:
    if end < axis.start or begin > axis.end:
        return None
    x = min(max(0.0, axis.x(begin)), 100 - _THINNEST)
    width = max(_THINNEST, min(100.0, axis.x(end)) - x)
    said = "" if part == "point" else f": {duration((end - begin) / timedelta(milliseconds=1))}"
    return Piece(part=part, look=look, title=f"{_TITLES[part]}{said}", x=round(x, 3), width=round(width, 3))
