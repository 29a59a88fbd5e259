"""The role `lake`: finished days to Parquet, old days out of the store, old history away.

A round looks at every day once. Each step is conditional on what it saw, so that a crash anywhere, or
a second process, repeats work and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from cells.history import LakeDay
from cells.lake.files import LakeFiles
from cells.lake.workflows import WorkflowArchive
from cells.lake.writer import LakeWriter, Place, Verdict, by_day
from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import LeaseLost, Retryable, Store, Terminal

log = logger(__name__)

INTERVAL_SECONDS = 600.0
RETRY_SECONDS = 30.0
#: The right to write is held for so long, and asked for again at half of it (seconds).
_HELD_SECONDS = 300.0
_DAY = timedelta(days=1)
#: A day is written this long after its end, and looked at again while some of its runs are not over.
SETTLED = timedelta(hours=1)
LOOK_AGAIN = timedelta(hours=6)
#: Files that are no part of the lake are removed at this age: a writer may be about to make them one.
ABANDONED = timedelta(days=1)
STRAYS_PAGE = 20_000
PAGE = 5000
PAUSE_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """How many days each thing stays."""

    runs: int = 30  # in the store; with them jobs that ended, replaced versions and dead letters
    history: int = 396  # in the lake: thirteen months


class LakeService:
    """Any number of processes may run it; one at a time writes."""

    def __init__(
        self,
        store: Store,
        files: LakeFiles,
        place: Place,
        metrics: Metrics,
        *,
        host_id: Callable[[], int],
        kept: Kept,
        interval: float = INTERVAL_SECONDS,
        page: int = PAGE,
    ) -> None:
        self._store, self._files, self._place = store, files, place
        self._host_id, self._kept, self._interval, self._page = host_id, kept, interval, page
        self._writer = LakeWriter(store, files, place, renew=self._renewed)
        self._archive = WorkflowArchive(store, files, place, renew=self._renewed)
        self._renewed_at = float("-inf")
        self._replaced_since = datetime(1970, 1, 1, tzinfo=UTC)
        self._written = metrics.counter("lake_rows_written_total", "Runs written to the history lake")
        self._dropped = metrics.counter("lake_days_dropped_total", "Days of runs dropped from the store")
        self._expired = metrics.counter("lake_days_expired_total", "Days removed from the history lake")
        self._purged = metrics.counter(
            "lake_rows_purged_total", "Rows removed from the store because their time was over", ["what"]
        )
        self._moved = metrics.counter(
            "lake_workflows_moved_total", "Closed workflows that left the store for the history lake"
        )
        self._mismatches = metrics.counter(
            "lake_mismatches_total", "Days whose files were not what the store holds; they were written anew"
        )
        self._failures = metrics.counter("lake_rounds_failed_total", "Rounds that did not get to their end")
        self._waiting = metrics.gauge(
            "lake_days_overdue", "Days old enough to be dropped that are still in the store"
        )
        self._backlog = metrics.gauge("lake_days_unwritten", "Days that are over and not yet in the lake")

    async def run(self, stop: asyncio.Event) -> None:
        """At once, then every ten minutes, until `stop`."""
        while not stop.is_set():
            pause = self._interval
            try:
                await self.round(stop)
                # Who else has to write, as an erasure, need not wait for the end of what we hold.
                await self._store.lake_leave(host_id=self._host_id())
            except (Retryable, Terminal, TimeoutError) as fault:
                pause = min(RETRY_SECONDS, self._interval)
                self._failures.inc()
                log.warning("the lake's round failed", fault=str(fault)[:300])
            await _stopped_within(stop, pause)

    async def round(self, stop: asyncio.Event) -> None:
        """Look at every day once."""
        if not await self._store.lake_take(host_id=self._host_id(), seconds=_HELD_SECONDS):
            return
        self._renewed_at = asyncio.get_running_loop().time()
        days = await self._store.lake_calendar()
        if not days:
            return
        today = days[0].now.astimezone(UTC).date()
        cut = today - self._kept.runs * _DAY
        self._moved.inc(await self._archive.move_out(cut, stop))
        overdue = 0
        for day in days:
            if stop.is_set():
                return
            if not day.partitioned:
                continue
            await self._written_up(day)
            if day.day < cut and not await self._moved_out(day.day):
                overdue += 1
        self._waiting.set(overdue)
        self._backlog.set(sum(1 for day in await self._store.lake_calendar() if _unwritten(day)))
        await self._take_strays(cut, days[0].now, stop)
        await self._purge(days[0].now, stop)
        await self._expire(today - self._kept.history * _DAY)
        await self._archive.expire(today - self._kept.history * _DAY)
        await self._archive.sweep(ABANDONED)

    async def _written_up(self, day: LakeDay) -> None:
        if _unwritten(day):
            self._written.inc(await self._writer.write(day))
        elif day.unfinished and day.looked_at is not None and day.now - day.looked_at >= LOOK_AGAIN:
            self._written.inc(await self._writer.write(day, further=True))

    async def _moved_out(self, wanted: date) -> bool:
        """Verify a day and drop it; whether it is gone. A day that changes, has runs under way or is not
        metered stays until another round."""
        try:
            day = await self._day(wanted)
            if day.unfinished:
                return False
            seen, metered = await self._store.watch_runs_day(wanted)
            if not metered:
                return False
            if day.overlapping:
                self._written.inc(await self._writer.write(day))
            verdict = await self._writer.verify(wanted)
            if verdict is Verdict.DIFFERS:
                self._mismatches.inc()
                log.warning("a day's files are not what the store holds; written anew", day=str(wanted))
                self._written.inc(await self._writer.write(await self._day(wanted)))
                verdict = await self._writer.verify(wanted)
            if verdict is Verdict.SAME:
                gone = await self._store.drop_runs_day(wanted, seen=seen)
                self._dropped.inc(gone)
                return gone
            # Something was set going again: the next look into the day is dated now.
            self._written.inc(await self._writer.write(await self._day(wanted), further=True))
        except Retryable as fault:
            log.info("an old day stays until the next round", day=str(wanted), fault=str(fault)[:200])
        return False

    async def _day(self, wanted: date) -> LakeDay:
        for day in await self._store.lake_calendar():
            if day.day == wanted:
                return day
        raise Retryable(f"{wanted} is gone")

    async def _take_strays(self, cut: date, now: datetime, stop: asyncio.Event) -> None:
        """Old runs outside of every partition: into the lake, then away."""
        while not stop.is_set():
            rows = await self._store.lake_strays(before=cut, limit=STRAYS_PAGE)
            for day, some in by_day(rows).items():
                known = [found for found in await self._store.lake_calendar() if found.day == day]
                state = known[0] if known else LakeDay(day=day, partitioned=False, now=now)
                self._written.inc(await self._writer.write_rows(state, some))
                self._purged.labels("strays").inc(await self._store.remove_strays(some))
            if len(rows) < STRAYS_PAGE or await _stopped_within(stop, PAUSE_SECONDS):
                return

    async def _purge(self, now: datetime, stop: asyncio.Event) -> None:
        """Jobs that ended, replaced versions, dead letters, page by page."""
        before = now - self._kept.runs * _DAY
        horizon = await self._store.runs_horizon()
        replaced_before = min(before, horizon) if horizon is not None else before
        while True:
            gone = await self._store.purge_jobs(
                ended_before=before,
                replaced=(self._replaced_since, replaced_before),
                failed_before=before,
                page=self._page,
            )
            for what, rows in gone.items():
                self._purged.labels(what).inc(rows)
            if not any(gone.values()):
                break
            if await _stopped_within(stop, PAUSE_SECONDS):
                return
        # What lies further back has been looked through; clocks and open transactions get a day.
        self._replaced_since = max(self._replaced_since, replaced_before - _DAY)

    async def _expire(self, before: date) -> None:
        """Days whose time in the lake is over, and files that are no part of it."""
        from cells.lake.parquet import MANIFEST, cell_prefix, day_of

        self._expired.inc(await self._store.lake_expire(before=before))
        known = await self._store.lake_file_names()
        days = {day.day for day in await self._store.lake_calendar() if day.generation}
        prefix = cell_prefix(region=self._place.region, cell=self._place.cell)
        found = await asyncio.to_thread(lambda: list(self._files.list(prefix)))
        old = datetime.now(UTC) - ABANDONED
        over = [
            file.name
            for file in found
            if file.name not in known
            and (
                (day := day_of(file.name)) is None
                or day < before
                or (file.modified < old and not (file.name.endswith(MANIFEST) and day in days))
            )
        ]
        if over:
            await asyncio.to_thread(self._files.delete, over)

    async def _renewed(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._renewed_at < _HELD_SECONDS / 2:
            return
        if not await self._store.lake_take(host_id=self._host_id(), seconds=_HELD_SECONDS):
            raise LeaseLost("another process writes the lake")
        self._renewed_at = now


def _unwritten(day: LakeDay) -> bool:
    end = datetime.combine(day.day, time(), UTC) + _DAY
    return day.partitioned and day.generation == 0 and day.now >= end + SETTLED


async def _stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True
