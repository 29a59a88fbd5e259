"""What a claim of a job does: which occurrence runs, which are skipped, what comes next.

The store calls this between locking a job's row and writing it. Occurrences are *due* when
their instant plus the job's window offset has passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cells.domain.job import JobDefinition, Misfire
from cells.domain.schedule import Compiled, compile_schedule
from cells.domain.zones import LATEST

MISFIRE = "misfire"  # missed, and the policy does not run it
DST_GAP = "dst_gap"  # its local time did not exist, and the policy is SKIP
CALENDAR = "calendar"  # its calendar excludes the day
CONCURRENCY = "concurrency"  # no place of its concurrency key is free: it waits
OVERLAP = "overlap"  # the one before had not ended, and the overlap policy does not run both

#: RUN_ALL catches up with this many occurrences; older ones are skipped.
RUN_ALL_LIMIT = 1000
#: A SKIP job with no grace of its own is not skipped for being this late (seconds): a dead
#: host is replaced in less, and nobody asked for runs that depend on our milliseconds.
DEFAULT_GRACE_SECONDS = 60

#: Beyond this nothing differs any more.
MAX_GRACE_SECONDS = 10 * 366 * 86_400

_TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_HOUR = 3600
#: How far behind its last occurrence a schedule may still have swallowed ones before it ends.
_LAST_LOOK = timedelta(days=5 * 366)


@dataclass(frozen=True, slots=True)
class Skip:
    """Occurrences that deliberately do not run: one SKIPPED row at `at` for `count` of them."""

    at: datetime
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """What to write. `next` is the job's next occurrence; without one it is `done`."""

    run_at: datetime | None  # the occurrence to run now, if any
    skipped: tuple[Skip, ...]
    next: datetime | None

    @property
    def done(self) -> bool:
        """Whether the job has no further occurrence."""
        return self.next is None


def plan_claim(
    definition: JobDefinition, scheduled_for: datetime, now: datetime, *, offset_ms: int = 0
) -> ClaimPlan:
    """Plan the claim of a job that waits for `scheduled_for` and is due.

    `offset_ms` is the job's window offset: a later occurrence inside its own window is not
    late. Nothing that is not due yet is ever run.
    """
    compiled = compile_schedule(definition.schedule)
    due = now - timedelta(milliseconds=offset_ms)  # occurrences up to here are due
    grace = timedelta(seconds=min(definition.misfire_grace_seconds, MAX_GRACE_SECONDS))
    plan: tuple[datetime | None, datetime | None, Skip | None]
    match definition.misfire_policy:
        case Misfire.RUN_ONCE:
            plan = _run_once(compiled, scheduled_for, due, grace)
        case Misfire.RUN_ALL:
            plan = _run_all(compiled, scheduled_for, due, grace)
        case Misfire.SKIP:
            plan = _skip(compiled, scheduled_for, due, grace or timedelta(seconds=DEFAULT_GRACE_SECONDS))
    run_at, following, misfire = plan
    skipped = () if misfire is None else (misfire,)
    return ClaimPlan(run_at, (*skipped, *swallowed(compiled, scheduled_for, following)), following)


def swallowed(compiled: Compiled, after: datetime, following: datetime | None) -> tuple[Skip, ...]:
    """What does not run between an instant and the occurrence that a job waits for next (None: to
    the schedule's end), because of DST gaps or its calendar."""
    until = following or min(after, LATEST - _LAST_LOOK) + _LAST_LOOK
    skips = [Skip(_beside(compiled, end), DST_GAP, n) for end, n in compiled.gaps(after, until)]
    if (excluded := compiled.excluded(after, until)) is not None:
        skips.append(Skip(excluded[0], CALENDAR, excluded[1]))
    return tuple(skips)


def _beside(compiled: Compiled, end: datetime) -> datetime:
    """The last second before a gap's end at which no run of the job stands, so that the row's key
    is free."""
    at = end - _SECOND
    for _ in range(_HOUR):
        found = compiled.next(at - _TICK)
        if found is None or found.at != at:
            break
        at -= _SECOND
    return at


Plan = tuple[datetime | None, datetime | None, Skip | None]


def _after(compiled: Compiled, at: datetime) -> datetime | None:
    found = compiled.next(at)
    return None if found is None else found.at


def _run_once(compiled: Compiled, first: datetime, due: datetime, grace: timedelta) -> Plan:
    following = _after(compiled, first)
    if following is None or following > due or first + grace >= due:
        return first, following, None
    latest = compiled.latest(following, due)  # it runs; one row stands for all before it
    return latest, _after(compiled, latest), Skip(first, MISFIRE, 1 + compiled.count(first, latest - _TICK))


def _run_all(compiled: Compiled, first: datetime, due: datetime, grace: timedelta) -> Plan:
    following = _after(compiled, first)
    if following is None or following > due or first + grace >= due:
        return first, following, None
    excess = compiled.count(first, due) + 1 - RUN_ALL_LIMIT
    if excess <= 0:
        return first, following, None
    low, high = first, due  # the oldest to run is the first one after some instant in between
    while high - low > _SECOND:
        middle = low + (high - low) / 2
        if compiled.count(middle, due) > RUN_ALL_LIMIT - 1:
            low = middle
        else:
            high = middle
    oldest = _after(compiled, low) or first
    skipped = 1 + compiled.count(first, oldest - _TICK)
    return oldest, _after(compiled, oldest), Skip(first, MISFIRE, skipped)


def _skip(compiled: Compiled, first: datetime, due: datetime, grace: timedelta) -> Plan:
    if first >= due - grace:
        return first, _after(compiled, first), None
    fresh = _after(compiled, due - grace - _TICK)  # the first one inside the grace, or ahead
    skipped = Skip(first, MISFIRE, 1 + compiled.count(first, due - grace - _TICK))
    if fresh is None or fresh > due:
        return None, fresh, skipped
    return fresh, _after(compiled, fresh), skipped
