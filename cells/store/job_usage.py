"""Runs that ended, by job and day: for the usage by job, and to hold the meters against.

Read from the journal's sealed minutes, which never change, and added in the transaction that
remembers how far: each run is counted exactly once.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import msgspec

from cells.ports import JobUsage, UsageSpan
from cells.rounds import Rounds
from cells.store.arrays import from_datetime, instants, int8s, uuids
from cells.store.base import StoreBase
from cells.store.database import fetch_all, fetch_row, run
from cells.store.journal import is_job_run

#: Journal rows in memory at once: under load each tells of hundreds of runs.
_PAGE = 200
#: Jobs in one statement.
_SLICE = 2_000
#: Sealed time that is counted in one transaction, at most.
_AT_MOST = timedelta(hours=1)
#: One transaction counts for about so long (seconds), and about so many jobs: it holds a connection and a
#: snapshot.
_COUNTING_SECONDS, _JOBS = 2.0, 10_000
#: A job of every minute costs a row's write in each step, not in each run.
STEP = timedelta(minutes=10)


class _Finished(msgspec.Struct):
    """The part of a journal body that tells of runs."""

    finished: list[tuple[str, str, int, int, int, str, int]] = []


_decode = msgspec.json.Decoder(_Finished).decode


class JobUsages(StoreBase):
    """Counting and reading."""

    async def fold_job_usage(self, *, step: timedelta = STEP) -> bool:
        """See `ports.Store.fold_job_usage`."""
        async with self._database.transaction() as connection:
            if not (await fetch_row(connection, "job_usage_lock"))[0]:
                return False
            since, sealed = await fetch_row(connection, "job_usage_state", {"step": step})
            until = min(sealed, since + _AT_MOST)
            if until <= since:
                return False
            end = time.monotonic() + _COUNTING_SECONDS
            runs: Counter[tuple[str, datetime, str]] = Counter()
            reached = since
            place: dict[str, object] = {"at": since, "host": -1, "seq": -1}
            rounds = Rounds()
            while until > reached:
                rows = await fetch_all(connection, "seal_bodies", {**place, "until": until, "page": _PAGE})
                for at, _, _, _, _, body in rows:
                    if at > reached > since and (len(runs) >= _JOBS or time.monotonic() > end):
                        until = at  # all before it is counted
                        break
                    reached = at
                    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
                    for tenant, parent, _, ordinal, _, state, _ in _decode(body).finished:
                        if is_job_run(parent, ordinal, state):
                            runs[tenant, day, parent] += 1
                    await rounds.give_way()
                else:
                    if len(rows) == _PAGE:
                        place = dict(zip(("at", "host", "seq"), rows[-1], strict=False))
                        continue
                break
            found = sorted(runs)
            for first in range(0, len(found), _SLICE):
                keys = found[first : first + _SLICE]
                await run(
                    connection,
                    "job_usage_add",
                    {
                        "tenants": uuids([uuid.UUID(tenant) for tenant, _, _ in keys]),
                        "days": instants([from_datetime(day) for _, day, _ in keys]),
                        "jobs": uuids([uuid.UUID(job) for _, _, job in keys]),
                        "runs": int8s([runs[key] for key in keys]),
                    },
                )
            await run(connection, "job_usage_done", {"until": until})
            return True

    async def usage_span(self) -> UsageSpan:
        """See `ports.Store.usage_span`."""
        async with self._database.transaction() as connection:
            since, until = await fetch_row(connection, "job_usage_span")
            return UsageSpan(since=since, until=until)

    async def runs_of_day(self, day: date) -> Sequence[tuple[uuid.UUID, str, int]]:
        """See `ports.Store.runs_of_day`."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "job_usage_of_day", {"day": day})
            return [(tenant, policy, runs) for tenant, policy, runs in rows]

    async def usage_by_job(
        self, tenant_id: uuid.UUID, *, since: date, until: date, after: uuid.UUID | None, limit: int
    ) -> Sequence[JobUsage]:
        """See `ports.Store.usage_by_job`."""
        parameters = {
            "tenant": tenant_id,
            "since": since,
            "until": until,
            "after": after or uuid.UUID(int=0),
            "limit": limit,
        }
        async with self._database.transaction() as connection:
            return [
                JobUsage(job_id=job, region_policy=policy, runs=runs)
                for job, policy, runs in await fetch_all(connection, "job_usage_by_job", parameters)
            ]
