"""The tasks of pull workers: handed out, kept alive, given back, taken from the silent."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from cells.domain.ids import RunKey
from cells.domain.job import Priority
from cells.domain.run import RunState
from cells.domain.sharing import shares
from cells.observability.logs import logger
from cells.pulling import (
    Beat,
    Extended,
    Held,
    LeaseLook,
    Poller,
    PulledRun,
    PulledTask,
    QueueId,
    WorkerSeen,
)
from cells.records import Reaped
from cells.store.arrays import (
    from_datetime,
    instants,
    int4s,
    int8s,
    texts,
    uuids,
)
from cells.store.complete import Completions
from cells.store.concurrency import admit_polled, hold
from cells.store.database import Connection, fetch_all, fetch_row, run
from cells.store.fronts import BEGINNING
from cells.store.journal import RELEASED, Entry, seconds
from cells.store.pulled_rows import pulled_run, readable, taken_columns

log = logger(__name__)

#: Tenant, parent, instant, ordinal, epoch: one order of claims for all who lock several.
_Place = tuple[int, int, datetime, int, int]
#: What one goodbye gives back at once; the rest is found by the reaper.
_GOODBYE_LIMIT = 1000
#: How often a poll looks behind parked tasks, before it waits like one that found none.
_ROUNDS = 8


class Pulls(Completions):
    """`poll`, `give_back`, `heartbeat`, `pulled_runs`, and the reaper's part."""

    _leases_since = BEGINNING  # where the last look at the leases of workers began

    async def poll(self, pollers: Sequence[Poller], *, host_id: int) -> Sequence[Sequence[PulledTask]]:
        """See `pulling.PullStore.poll`."""
        got: list[list[PulledTask]] = [[] for _ in pollers]
        of_queue: defaultdict[QueueId, list[int]] = defaultdict(list)
        for n, poller in enumerate(pollers):
            of_queue[poller.tenant_id, poller.task_queue].append(n)
        for _ in range(_ROUNDS):
            # Others may be behind those that found no place of their concurrency key, or cannot be read.
            if await self._poll(pollers, of_queue, got, host_id) or any(got):
                break
        return got

    async def _poll(
        self,
        pollers: Sequence[Poller],
        of_queue: dict[QueueId, list[int]],
        got: list[list[PulledTask]],
        host_id: int,
    ) -> bool:
        """Fill `got`; whether this was all there is. Of a queue twice as many more are looked at as
        could not be read the last time."""
        queues, known = list(of_queue), self._unreadable
        look = self._ready.look(queues)
        counts = [sum(pollers[n].count for n in of_queue[queue]) for queue in queues]
        async with self._database.transaction() as connection:
            shut = await _shut(connection, queues) if look.deep else ()
            rows = await fetch_all(
                connection,
                "pull_lock",
                {
                    "tenants": uuids([tenant for tenant, _ in queues]),
                    "queues": texts([name for _, name in queues]),
                    "counts": int4s(
                        [n + 2 * known.get(queue, 0) for n, queue in zip(counts, queues, strict=True)]
                    ),
                    **look.columns(),
                },
            )
            again = look.ended(counts, [(row[0] - 1, row[8], row[10]) for row in rows], shut)
            if not rows:
                return not again
            offered, stuck = readable(rows, queues, counts)
            more = self._passed_over(queues, stuck) or again
            if not offered:
                return not more
            claims = [task.claim for _, task in offered]
            holding, parked = await admit_polled(connection, claims, self._held)
            found: defaultdict[int, list[PulledTask]] = defaultdict(list)
            for place, task in offered:
                if task.claim.key not in parked:
                    found[place].append(task)
            tasks: list[PulledTask] = []
            workers: list[str] = []
            for place, ready in found.items():
                ready.sort(key=lambda task: (task.claim.priority, task.claim.due_ms))
                waiting = of_queue[queues[place]]
                each = shares([pollers[n].count for n in waiting], len(ready))
                # One after the other, so that each gets its part of what is due first.
                turns = sorted(
                    (turn, n) for n, count in zip(waiting, each, strict=True) for turn in range(count)
                )
                for (_, n), task in zip(turns, ready, strict=True):
                    got[n].append(task)
                    tasks.append(task)
                    workers.append(pollers[n].worker_id)
            async with connection.pipeline():
                if tasks:
                    await run(connection, "pull_take", {**taken_columns(tasks, workers), "now": rows[0][-1]})
                if holding:
                    await hold(connection, holding)
                entry = Entry()
                for task in tasks:
                    c = task.claim
                    at = seconds(c.key.scheduled_for)
                    entry.claimed.append((c.tenant_id.hex, c.key.parent_id.hex, at, c.key.ordinal, c.epoch))
                await self._journal.append(connection, host_id, entry)
                await connection.commit()
        return not parked and not more

    def _passed_over(self, queues: Sequence[QueueId], stuck: dict[QueueId, list[str]]) -> bool:
        """Remember how many tasks of each queue cannot be read; whether they are more than before."""
        more = False
        for queue in queues:
            runs = stuck.get(queue, ())
            if len(runs) > self._unreadable.get(queue, 0):
                more = True
                log.error("tasks cannot be read", tenant=str(queue[0]), queue=queue[1], runs=runs)
            if runs:
                self._unreadable[queue] = len(runs)
            else:
                self._unreadable.pop(queue, None)
        return more

    async def give_back(self, held: Sequence[Held], *, host_id: int) -> Sequence[QueueId | None]:
        """See `pulling.PullStore.give_back`."""
        queues: list[QueueId | None] = [None] * len(held)
        if not held:
            return queues
        order = sorted(range(len(held)), key=lambda n: _place(held[n]))
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "pull_give_back", _claims([held[n] for n in order]))
            if not rows:
                return queues
            entry = Entry()
            for i, state, queue, policy in rows:
                one = held[order[i - 1]]
                queues[order[i - 1]] = (one.tenant_id, queue)
                self._ready.forget((one.tenant_id, queue))
                entry.ended(
                    one.tenant_id.hex,
                    one.key.parent_id.hex,
                    seconds(one.key.scheduled_for),
                    one.key.ordinal,
                    one.epoch,
                    RELEASED if state == RunState.READY else state,
                    attempts=0,
                    region_policy=policy or "HOME_ASYNC",
                )
            await self._journal.append(connection, host_id, entry)
        return queues

    async def give_back_of(self, worker: WorkerSeen, *, host_id: int) -> int:
        """See `pulling.PullStore.give_back_of`."""
        parameters = {
            "tenant": worker.tenant_id,
            "queue": worker.task_queue,
            "worker": worker.worker_id,
            "limit": _GOODBYE_LIMIT,
        }
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "pull_held_by", parameters)
        held = [
            Held(
                tenant_id=worker.tenant_id,
                key=RunKey(parent_id=parent, scheduled_for=at, ordinal=ordinal),
                epoch=epoch,
            )
            for parent, at, ordinal, epoch in rows
        ]
        return sum(queue is not None for queue in await self.give_back(held, host_id=host_id))

    async def heartbeat(self, beats: Sequence[Beat], *, host_id: int) -> Sequence[Extended | None]:
        """See `pulling.PullStore.heartbeat`."""
        if not beats:
            return []
        # A beat may be there twice (a repeat in the same batch): both are told what the claim's one did.
        places = [_place(beat.held) for beat in beats]
        merged: dict[_Place, Beat] = {}
        for place, beat in zip(places, beats, strict=True):
            if beat.progress is not None or place not in merged:
                merged[place] = beat
        # One order for all who lock several.
        order = sorted(merged)
        async with self._database.transaction() as connection:
            rows = await fetch_all(
                connection,
                "pull_heartbeat",
                {
                    **_claims([merged[place].held for place in order]),
                    "progress": texts([_text(merged[place].progress) for place in order]),
                },
            )
            if not rows:
                return [None] * len(beats)
            told = {
                order[i - 1]: Extended(lease_expires_at=until, lease_ms=lease_ms, cancel_requested=cancel)
                for i, until, lease_ms, cancel in rows
            }
            await self._journal.append(connection, host_id, Entry())
        return [told.get(place) for place in places]

    async def pulled_runs(self, wanted: Sequence[Held]) -> Sequence[PulledRun | None]:
        """See `pulling.PullStore.pulled_runs`."""
        found: list[PulledRun | None] = [None] * len(wanted)
        if not wanted:
            return found
        async with self._database.transaction() as connection:
            for row in await fetch_all(connection, "pull_runs", _keys(wanted)):
                found[row[0] - 1] = pulled_run(wanted[row[0] - 1], row)
        return found

    async def look_at_leases(self) -> LeaseLook:
        """See `pulling.PullStore.look_at_leases`."""
        async with self._database.transaction() as connection:
            began = time.monotonic()
            (since,) = self._oldest_lease.begin(began)
            live, expired, interval, age, first, at = await fetch_row(
                connection, "status_leases", {"since": since}
            )
            now = time.monotonic()
            self._oldest_lease.ended([first], at=at, now=now, took=now - began)
            self._leases_since = since
        return LeaseLook(live=live, expired=expired, interval_s=float(interval), contact_age_s=age)

    async def reap_pulled(self, *, host_id: int, limit: int) -> Reaped:
        """See `pulling.PullStore.reap_pulled`."""
        return await self._look_and_take(
            "pull_suspects", {"limit": limit, "since": self._leases_since}, host_id
        )


async def _shut(connection: Connection, queues: Sequence[QueueId]) -> list[tuple[int, int]]:
    """Places and classes of queues that polls get nothing of now: what waits there keeps its turn, and must
    be found when it may go on."""
    tenants = uuids(list({tenant for tenant, _ in queues}))
    rows = await fetch_all(connection, "pull_shut", {"tenants": tenants})
    wholly: dict[uuid.UUID, bool] = dict(rows)
    return [
        (place, priority)
        for place, (tenant, _) in enumerate(queues)
        if tenant in wholly
        for priority in (Priority if wholly[tenant] else (Priority.LOW,))
    ]


def _place(held: Held) -> _Place:
    key = held.key
    return held.tenant_id.int, key.parent_id.int, key.scheduled_for, key.ordinal, held.epoch


def _text(progress: bytes | None) -> str | None:
    return None if progress is None else progress.decode()


def _keys(held: Sequence[Held]) -> dict[str, object]:
    return {
        "tenants": uuids([one.tenant_id for one in held]),
        "parents": uuids([one.key.parent_id for one in held]),
        "instants": instants([from_datetime(one.key.scheduled_for) for one in held]),
        "ordinals": int4s([one.key.ordinal for one in held]),
    }


def _claims(held: Sequence[Held]) -> dict[str, object]:
    return {**_keys(held), "epochs": int8s([one.epoch for one in held])}
