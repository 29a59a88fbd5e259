"""The ledger of a job: every occurrence with its verdict, and the ones to come."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from cells.api import building, documents, history, pagination, shapes
from cells.api.finding import JobId, found_job, job_id_of
from cells.api.holdups import holdup_of, holdups_of
from cells.api.problems import invalid, query_fault
from cells.api.queries import LedgerQuery
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.runs import RunPlace, is_due, key_at, member_of_run, place_of
from cells.contract import Scope
from cells.domain import ids
from cells.domain.calendars import Roll
from cells.domain.claiming import CALENDAR, CONCURRENCY, OVERLAP
from cells.domain.job import STATUS, JobState
from cells.domain.missed import PAUSED, missed, through
from cells.domain.run import RunState
from cells.domain.schedule import compile_schedule, to_local
from cells.domain.windows import due_at
from cells.ports import JobRow, RunFilter, RunRow

routes = Routes("Jobs")

#: What is not claimed this long after it was due is late rather than just due.
_LATE = timedelta(seconds=5)
_TICK = timedelta(microseconds=1)

_VERDICTS = {
    RunState.SUCCEEDED: ("ran", "It ran."),
    RunState.SUCCEEDED_AFTER_CANCEL: ("ran", "It was cancelled too late: the call had succeeded."),
    RunState.FAILED: ("failed", "It failed for good and is in the dead-letter queue."),
    RunState.UNKNOWN: ("unknown", "Nobody knows whether it ran; it is in the dead-letter queue."),
    RunState.CANCELLED: ("cancelled", "It was cancelled."),
    RunState.RUNNING: ("running", "It is running."),
    RunState.RETRY_WAIT: ("retrying", "An attempt failed; it will be tried again."),
    RunState.DUE: ("waiting", "It waits for its turn."),
    RunState.READY: ("waiting", "It waits for a worker."),
}
_WAITING = (RunState.DUE, RunState.RETRY_WAIT)
_WAITS_FOR = {
    OVERLAP: "It waits for the one before it to end.",
    CONCURRENCY: "It waits for a place of its concurrency key.",
}
_SKIPPED = {
    "misfire": "Not run: it was missed, and the misfire policy does not catch up with it.",
    "dst_gap": "Not run: its local time did not exist on that day.",
    "calendar": "Not run: the job's calendar excludes the day.",
    "overlap": "Not run: the one before had not ended, and the overlap policy does not run both.",
    "paused": "Not run: the job was paused.",
    "edited": "Not run: the schedule was changed before the run began.",
    "cancelled": "Not run: the job was cancelled before the run began.",
}


@routes.add(
    "GET",
    "/v1/jobs/{job_id:name}/occurrences",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The occurrences.", shapes.Ledger)},
    problems=(404,),
)
async def list_occurrences(call: Call, job_id: JobId, query: Annotated[LedgerQuery, Query()]) -> Response:
    """List what became of a job's occurrences, newest first, and its next ones.

    `verdict` is one of ran, failed, unknown, cancelled, running, retrying, waiting, due, late or
    `skipped:` with the reason; `count` says how many occurrences an item stands for. Runs started
    by hand are listed, too.
    """
    row = await found_job(call, job_id_of(job_id))
    if query.since is not None and query.until is not None and query.since >= query.until:
        raise invalid([query_fault("from", "must lie before until")])
    now = call.services.now()
    filters = query.model_dump(mode="json", exclude={"limit", "cursor", "count"}, by_alias=True)
    kind = f"occurrences {row.job_id.hex}"
    after = pagination.read_cursor(query.cursor, kind, filters, RunPlace)
    found = await history.find_runs(
        call,
        RunFilter(job_id=row.job_id, scheduled_from=query.since, scheduled_until=query.until),
        after=key_at(after) if after is not None else None,
        limit=query.limit + 1,
    )
    rows = found.runs[: query.limit]
    following = rows[-1].key if len(found.runs) > query.limit else found.reached
    due = [run for run in rows if is_due(run, now)]
    holdups = await holdups_of(call, [member_of_run(call.tenant_id, run) for run in due], now)
    held = {run.key: holdup for run, holdup in zip(due, holdups, strict=True)}
    past = [_past(run, row, held.get(run.key)) for run in rows]
    if after is None and (open_one := _open(row, now)) is not None and _inside(row, query):
        if open_one["verdict"] == "late":
            open_one |= await _why_late(call, row, now)
        past.insert(0, open_one)
    cursor = None
    if following is not None:
        cursor = pagination.make_cursor(kind, filters, place_of(following))
    return answer(
        {
            "job_id": documents.job_text(row.job_id),
            "status": STATUS[row.state],
            "past": past,
            "next": _coming(row, now, query.count, query.until),
            "next_cursor": cursor,
        },
        headers=pagination.next_link(f"/v1/jobs/{job_id}/occurrences", filters, query.limit, cursor),
    )


async def _why_late(call: Call, row: JobRow, now: datetime) -> documents.Document:
    """What is known of why an occurrence has not begun."""
    member = building.member_of(row, call.tenant_id, version=row.version)
    holdup = await holdup_of(call, member, now) if member is not None else None
    return {} if holdup is None else {"sentence": holdup["reason"], "reason": holdup["because"]}


def _past(run: RunRow, row: JobRow, holdup: documents.Document | None) -> documents.Document:
    at, reason = run.key.scheduled_for, run.reason
    if run.state is RunState.SKIPPED:
        why = reason or "misfire"
        verdict, sentence = f"skipped:{why}", _SKIPPED.get(why, f"Not run: {why}.")
        if why == CALENDAR and row.definition.schedule.roll is not Roll.SKIP:
            sentence = "Not run on this day, which the job's calendar excludes: it moved to an open one."
    elif run.state in _WAITING and reason in _WAITS_FOR:
        verdict, sentence = "waiting", _WAITS_FOR[reason]
    else:
        verdict, sentence = _VERDICTS[run.state]
        if holdup is not None:
            sentence, reason = holdup["reason"], holdup["because"]
    begun = _first_start(run)
    late = (begun - run.due_at) // timedelta(milliseconds=1) if begun is not None else None
    return _item(
        row,
        at,
        verdict,
        sentence,
        run_id=ids.run_id(run.key),
        state=run.state,
        reason=reason,
        count=run.skipped if run.state is RunState.SKIPPED else 1,
        by_hand=run.key.ordinal > 0 and run.state is not RunState.SKIPPED,
        attempt=run.attempt,
        due_at=documents.instant(run.due_at),
        started_at=documents.instant(run.started_at),
        finished_at=documents.instant(run.finished_at),
        late_ms=late,
    )


def _first_start(run: RunRow) -> datetime | None:
    """When it was first started: it is not late because it was tried again."""
    starts = (attempt.started_at for attempt in run.attempts)
    first = next((text for text in starts if text is not None), None)
    return datetime.fromisoformat(first) if first is not None else run.started_at


def _item(row: JobRow, at: datetime, verdict: str, sentence: str, **more: Any) -> documents.Document:
    base = {
        "run_id": None,
        "scheduled_for": documents.instant(at),
        "local": to_local(at, row.definition.schedule.time_zone),
        "verdict": verdict,
        "sentence": sentence,
        "state": None,
        "reason": None,
        "count": 1,
        "by_hand": False,
        "attempt": 0,
        "due_at": None,
        "started_at": None,
        "finished_at": None,
        "late_ms": None,
    }
    return base | more


def _open(row: JobRow, now: datetime) -> documents.Document | None:
    """The occurrence whose time has come and that has no row yet."""
    at = row.next_run_at
    if at is None or at > now:
        return None
    if row.state is JobState.PAUSED:
        passed = missed(row.definition.schedule, at, through(now), PAUSED)
        count = passed.count if passed is not None else 1
        sentence = "Not run while the job is paused; recorded when it is resumed."
        return _item(row, at, "skipped:paused", sentence, reason=PAUSED, count=count)
    if row.state is not JobState.ACTIVE or row.due_at is None:
        return None
    due = {"due_at": documents.instant(row.due_at)}
    if row.due_at > now:
        return _item(row, at, "due", "Its time has come; it starts inside its dispatch window.", **due)
    if now - row.due_at <= _LATE:
        return _item(row, at, "due", "It starts now.", **due)
    late = (now - row.due_at) // timedelta(milliseconds=1)
    return _item(row, at, "late", "It is overdue and will run as soon as it can.", late_ms=late, **due)


def _inside(row: JobRow, query: LedgerQuery) -> bool:
    at = row.next_run_at
    return (
        at is not None
        and (query.since is None or at >= query.since)
        and (query.until is None or at < query.until)
    )


def _coming(row: JobRow, now: datetime, count: int, until: datetime | None) -> list[documents.Document]:
    if row.state is not JobState.ACTIVE or row.next_run_at is None:
        return []
    compiled = compile_schedule(row.definition.schedule)
    zone = row.definition.schedule.time_zone
    found: list[documents.Document] = []
    after = row.next_run_at - _TICK if row.next_run_at > now else now
    while len(found) < count:
        occurrence = compiled.next(after)
        if occurrence is None or (until is not None and occurrence.at >= until):
            break
        after = occurrence.at
        found.append(
            {
                "at": documents.instant(after),
                "local": to_local(after, zone),
                "note": occurrence.note,
                "due_at": documents.instant(due_at(after, row.offset_ms)),
            }
        )
    return found
