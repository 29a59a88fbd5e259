"""How attempts end: completed by their holder, given back, or taken from the dead."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

import msgspec

from cells.domain import ids
from cells.domain.ids import RunKey
from cells.domain.outcome import HOLDER_DIED, fingerprint
from cells.domain.run import POISON_DEATHS, RunState, run_generation
from cells.observability.logs import logger
from cells.ports import Applied, Claim, Completion, Member, Retryable
from cells.records import Reaped
from cells.store import callbacks
from cells.store.arrays import (
    due_to_ms,
    from_datetime,
    from_datetime_or_none,
    from_ms,
    instants,
    int2s,
    int4s,
    int8s,
    jsons,
    labels,
    texts,
    uuids,
)
from cells.store.base import StoreBase
from cells.store.callbacks import Ended, ended, tell
from cells.store.concurrency import wake
from cells.store.database import Connection, Row, fetch_all, run
from cells.store.events import Lost, fingerprint_of, tell_dead, tell_lost
from cells.store.fronts import Key
from cells.store.journal import RELEASED, Entry, seconds
from cells.store.overlap import wake_buffered
from cells.store.step_results import hand_on

log = logger(__name__)

_encode = msgspec.json.Encoder().encode
POISON = "POISON"
#: Reason and error in the DLQ of what ended because its holder died, by its state.
_LOST = {
    "FAILED": (POISON, "its executors died with it"),
    "UNKNOWN": ("UNKNOWN", "its holder died with it; it may have run"),
}
#: How far the looks at ended leases reach back: all of them; those that the reaper looks at.
_EVERYTHING_MS, _NOTHING_MS = 100 * 366 * 86_400_000, 0


class Completions(StoreBase):
    """`complete`, `release`, `reap` and `reap_orphans`."""

    async def complete(self, completions: Sequence[Completion], *, host_id: int) -> Applied:
        """See `ports.Store.complete`."""
        if not completions:
            return Applied(applied=(), retries=())
        applied = [False] * len(completions)
        states: list[RunState | None] = [None] * len(completions)
        retries: list[Member] = []
        async with self._database.transaction() as connection:
            ordered = sorted(range(len(completions)), key=lambda n: _place(completions[n]))
            rows = await fetch_all(connection, "complete_runs", _outcomes([completions[n] for n in ordered]))
            if not rows:
                return Applied(applied=applied, retries=(), states=states)
            entry = Entry()
            dead: list[tuple[Completion, Row]] = []
            awaited: list[tuple[uuid.UUID, uuid.UUID]] = []
            over: list[Ended] = []
            freed: list[Key] = []
            gone: dict[tuple[uuid.UUID, str], None] = {}
            for row in rows:
                i, state, attempt, series, priority, shard, wakes = row
                c = completions[ordered[i - 1]]
                key = c.key
                applied[ordered[i - 1]] = True
                states[ordered[i - 1]] = RunState(state)
                if wakes:
                    awaited.append((c.tenant_id, key.parent_id))
                lag = c.first_attempt_lag_ms
                entry.ended(
                    c.tenant_id.hex,
                    key.parent_id.hex,
                    int(key.scheduled_for.timestamp()),
                    key.ordinal,
                    c.epoch,
                    state,
                    lag_ms=-1 if lag is None else lag,
                    egress_bytes=c.egress_bytes,
                    region_policy=c.region_policy,
                )
                if c.started_ms is not None and c.target_id is not None:
                    ms = max(0, c.finished_ms - c.started_ms)
                    entry.called(c.tenant_id.hex, c.target_id, c.state, ms)
                if c.concurrency_key is not None:
                    freed.append((c.tenant_id, c.concurrency_key))
                if c.notify is not None and (end := ended(c, row)) is not None:
                    over.append(end)
                if state == "RETRY_WAIT" and c.timer_at is not None:
                    retries.append(
                        Member(
                            tenant_id=c.tenant_id,
                            parent_id=key.parent_id,
                            scheduled_for=int(key.scheduled_for.timestamp()),
                            ordinal=key.ordinal,
                            is_run=True,
                            generation=run_generation(series, attempt),
                            priority=priority,
                            due_ms=due_to_ms(c.timer_at),
                            shard=shard,
                        )
                    )
                elif state in ("FAILED", "UNKNOWN"):
                    dead.append((c, row))
                if c.target_gone and c.target_id is not None:
                    gone[c.tenant_id, c.target_id] = None
            await hand_on(connection, [completions[ordered[row[0] - 1]] for row in rows])
            if awaited:
                retries += await wake_buffered(connection, awaited)
            if gone:
                await self._mark_gone(connection, list(gone), entry)
            if dead:
                await tell_dead(connection, entry, [c for c, _ in dead], [row[1] for _, row in dead])
            if over:
                retries += await tell(connection, over)
            if freed:
                retries += await wake(connection, freed)
            async with connection.pipeline():
                if dead:
                    await run(connection, "complete_dead", _dead(dead))
                await self._journal.append(connection, host_id, entry)
                await connection.commit()
        if any(ids.is_workflow_run(c.key.parent_id) for c in completions):
            self.workflows_due()
        return Applied(applied=applied, retries=retries, states=states)

    async def _mark_gone(
        self, connection: Connection, gone: list[tuple[uuid.UUID, str]], entry: Entry
    ) -> None:
        gone.sort()  # one order for all, so that two batches never wait for each other
        for tenant, target in gone:
            parameters = {"tenants": uuids([tenant]), "targets": texts([target])}
            for _, _, version in await fetch_all(connection, "complete_gone", parameters):
                entry.intent(tenant, "target.gone", target, version - 1, version)
                entry.event(tenant, "target.gone", target, None, version=version)

    async def release(self, claims: Sequence[Claim], *, host_id: int, after_ms: int = 0) -> Sequence[Member]:
        """See `ports.Store.release`."""
        if not claims:
            return []
        members: list[Member] = []
        claims = sorted(claims, key=_place)
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "release_runs", {**_held(claims), "after_ms": after_ms})
            if not rows:
                return []
            entry = Entry()
            for i, state, attempt, timer_at in rows:
                c = claims[i - 1]
                at = seconds(c.key.scheduled_for)
                entry.ended(
                    c.tenant_id.hex,
                    c.key.parent_id.hex,
                    at,
                    c.key.ordinal,
                    c.epoch,
                    RELEASED if state == "RETRY_WAIT" else state,
                    attempts=0,
                    region_policy=c.definition.region_policy,
                )
                if timer_at is not None:
                    members.append(
                        Member(
                            tenant_id=c.tenant_id,
                            parent_id=c.key.parent_id,
                            scheduled_for=at,
                            ordinal=c.key.ordinal,
                            is_run=True,
                            generation=run_generation(c.series, attempt),
                            priority=c.priority,
                            due_ms=due_to_ms(timer_at),
                            shard=c.shard,
                        )
                    )
            await self._journal.append(connection, host_id, entry)
        return members

    async def reap(self, *, host_id: int, limit: int = 1000, back_ms: int | None = None) -> Reaped:
        """See `ports.Store.reap`."""
        return await self._reap(
            host_id,
            {
                **_held([]),
                "auditor": None,
                "older_than_ms": 0,
                "limit": limit,
                "back_ms": _EVERYTHING_MS if back_ms is None else back_ms,
            },
        )

    async def reap_orphans(self, *, host_id: int, held: Sequence[Claim], older_than_ms: int) -> Reaped:
        """See `ports.Store.reap_orphans`."""
        return await self._reap(
            host_id,
            {
                **_held(held),
                "auditor": host_id,
                "older_than_ms": older_than_ms,
                "limit": 1000,
                "back_ms": _NOTHING_MS,
            },
        )

    async def _reap(self, host_id: int, whose: dict[str, object]) -> Reaped:
        # Almost always there is nobody, and looking is all it costs.
        return await self._look_and_take("reap_suspects", whose, host_id, then="hosts_bury")

    async def _look_and_take(
        self, look: str, whose: dict[str, object], host_id: int, *, then: str | None = None
    ) -> Reaped:
        """Take those that a look finds from their holders, all in one transaction if the store takes
        them so; the timers to add. One that it refuses is logged and left: the others must not wait for
        it."""
        suspects: Sequence[Row] = ()
        try:
            async with self._database.transaction() as connection:
                suspects = await fetch_all(connection, look, whose)
                members, taken = await self._take_back(connection, suspects, host_id)
                if then is not None:
                    await run(connection, then)
                return Reaped(members, looked=len(suspects), taken=taken)
        except Retryable:
            raise
        except Exception:
            if not suspects:
                raise
        return await self._take_apart(suspects, host_id)

    async def _take_apart(self, suspects: Sequence[Row], host_id: int) -> Reaped:
        members = Reaped(looked=len(suspects))
        parts = [suspects]
        while parts:
            part = parts.pop()
            try:
                async with self._database.transaction() as connection:
                    timers, taken = await self._take_back(connection, part, host_id)
                members += timers
                members.taken += taken
            except Retryable:
                if not members.taken:
                    raise
                return members  # what is left is found by the next look
            except Exception as fault:  # noqa: BLE001 - the refused one is logged
                if len(part) == 1:
                    _refused(part[0], fault)
                else:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
        return members

    async def _take_back(
        self, connection: Connection, suspects: Sequence[Row], host_id: int
    ) -> tuple[Sequence[Member], int]:
        """Take suspects from their holders, in the caller's transaction; the timers to add, and how many
        were taken."""
        members: list[Member] = []
        rows = await fetch_all(connection, "reap_runs", _suspects(suspects)) if suspects else []
        if rows:
            entry = Entry()
            dead: list[Row] = []
            for row in rows:
                tenant, parent, at, ordinal, state, epoch, series = row[:7]
                attempt, priority, shard, timer_at, _, policy = row[7:]
                entry.ended(
                    tenant.hex,
                    parent.hex,
                    seconds(at),
                    ordinal,
                    epoch,
                    state,
                    region_policy=policy or "HOME_ASYNC",
                )
                if state in _LOST:
                    dead.append(row)
                elif timer_at is not None:
                    members.append(
                        Member(
                            tenant_id=tenant,
                            parent_id=parent,
                            scheduled_for=seconds(at),
                            ordinal=ordinal,
                            is_run=True,
                            generation=run_generation(series, attempt),
                            priority=priority,
                            due_ms=due_to_ms(timer_at),
                            shard=shard,
                        )
                    )
            if dead:
                lost = [Lost(row[0], row[1], row[2], row[3], _LOST[row[4]][0], row[11]) for row in dead]
                await tell_lost(connection, entry, lost)
                await run(connection, "complete_dead", _lost(dead))
                members += await tell(connection, await callbacks.lost(connection, dead))
            await self._journal.append(connection, host_id, entry)
        return members, len(rows)


def _refused(suspect: Row, fault: Exception) -> None:
    tenant, parent, at, ordinal = suspect[:4]
    log.error(
        "a run cannot be taken from its dead holder",
        tenant=str(tenant),
        run=ids.run_id(RunKey(parent_id=parent, scheduled_for=at, ordinal=ordinal)),
        fault=f"{type(fault).__name__}: {fault}"[:200],
    )


def _place(ended: Claim | Completion) -> tuple[int, int, datetime, int]:
    """One order of runs for all who lock several, those who cancel a job's among them: they may wait
    for each other, never in a circle."""
    key = ended.key
    return ended.tenant_id.int, key.parent_id.int, key.scheduled_for, key.ordinal


def _held(claims: Sequence[Claim]) -> dict[str, object]:
    return {
        "tenants": uuids([c.tenant_id for c in claims]),
        "parents": uuids([c.key.parent_id for c in claims]),
        "instants": instants([from_datetime(c.key.scheduled_for) for c in claims]),
        "ordinals": int4s([c.key.ordinal for c in claims]),
        "epochs": int8s([c.epoch for c in claims]),
    }


def _suspects(rows: Sequence[Row]) -> dict[str, object]:
    return {
        "tenants": uuids([row[0] for row in rows]),
        "parents": uuids([row[1] for row in rows]),
        "instants": instants([from_datetime(row[2]) for row in rows]),
        "ordinals": int4s([row[3] for row in rows]),
        "epochs": int8s([row[4] for row in rows]),
        "names": texts([row[5] for row in rows]),
        "poison_deaths": POISON_DEATHS,
    }


def _outcomes(completions: Sequence[Completion]) -> dict[str, object]:
    return {
        "tenants": uuids([c.tenant_id for c in completions]),
        "parents": uuids([c.key.parent_id for c in completions]),
        "instants": instants([from_datetime(c.key.scheduled_for) for c in completions]),
        "ordinals": int4s([c.key.ordinal for c in completions]),
        "epochs": int8s([c.epoch for c in completions]),
        "states": labels([c.state for c in completions]),
        "timers": instants([from_datetime_or_none(c.timer_at) for c in completions]),
        "started": instants([None if c.started_ms is None else from_ms(c.started_ms) for c in completions]),
        "finished": instants([from_ms(c.finished_ms) if c.finished_ms else None for c in completions]),
        "statuses": int2s([c.attempt.status for c in completions]),
        "reasons": labels([c.reason for c in completions]),
        "attempts": jsons([_encode(c.attempt) for c in completions]),
    }


def _dead(dead: Sequence[tuple[Completion, Row]]) -> dict[str, object]:
    return {
        "tenants": uuids([c.tenant_id for c, _ in dead]),
        "parents": uuids([c.key.parent_id for c, _ in dead]),
        "instants": instants([from_datetime(c.key.scheduled_for) for c, _ in dead]),
        "ordinals": int4s([c.key.ordinal for c, _ in dead]),
        "series": int4s([row[3] for _, row in dead]),
        "fingerprints": texts([fingerprint_of(c) for c, _ in dead]),
        "reasons": texts([row[1] for _, row in dead]),
        "targets": texts([c.target_id for c, _ in dead]),
        "statuses": int2s([c.attempt.status for c, _ in dead]),
        "errors": texts([c.attempt.error for c, _ in dead]),
        "attempts": int4s([row[2] for _, row in dead]),
    }


def _lost(rows: Sequence[Row]) -> dict[str, object]:
    return {
        "tenants": uuids([row[0] for row in rows]),
        "parents": uuids([row[1] for row in rows]),
        "instants": instants([from_datetime(row[2]) for row in rows]),
        "ordinals": int4s([row[3] for row in rows]),
        "series": int4s([row[6] for row in rows]),
        "fingerprints": texts([fingerprint(row[11] or "", None, HOLDER_DIED[row[4]]) for row in rows]),
        "reasons": texts([_LOST[row[4]][0] for row in rows]),
        "targets": texts([row[11] for row in rows]),
        "statuses": int2s([None for _ in rows]),
        "errors": texts([_LOST[row[4]][1] for row in rows]),
        "attempts": int4s([row[7] for row in rows]),
    }
