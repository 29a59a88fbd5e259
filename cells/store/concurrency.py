"""Places of concurrency keys: at most `max_concurrent` runs of a key are RUNNING.

Places are only ever taken under a lock per key, by whoever counted the RUNNING ones after it had the
lock; so the count may be too high for a moment (a run just ended), never too low. What finds no place is
parked: a run that waits without a timer that comes. Whoever ends a run wakes the oldest, under the same
lock, so that nobody is parked behind the back of the one who wakes. `wake_parked` finds what is left
over: places of the dead, and of limits that were raised.

The lock is taken after rows are: claims hold only waiting rows, completions only rows that were
RUNNING, and neither waits for the other's.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from cells.domain.ids import RunKey
from cells.domain.job import JobDefinition, TargetType
from cells.domain.run import NEVER, run_generation
from cells.ports import Claim, Member
from cells.store.arrays import (
    bools,
    due_to_ms,
    from_datetime,
    from_ms,
    instants,
    int2s,
    int4s,
    labels,
    texts,
    uuids,
)
from cells.store.base import StoreBase
from cells.store.claim_batch import ClaimBatch, Insert, claim_keys, is_guarded
from cells.store.database import Connection, Row, fetch_all, run
from cells.store.fronts import HeldFronts, Key
from cells.store.journal import Entry, seconds

#: Keys looked at together by `wake_parked`.
_KEYS = 200
_FIRST = (uuid.UUID(int=0), "")


class _Wish(NamedTuple):
    """A run that wants a place."""

    due_us: int
    order: tuple[int, datetime, int]  # parent, instant, ordinal: among those due together
    limit: int
    claim: Claim | None  # of this batch
    parked: Row | None  # else: `concurrency_waiting`


def key_of(tenant_id: uuid.UUID, definition: JobDefinition) -> Key | None:
    """The key whose place a run of that definition takes when it is claimed. A task for pull workers
    takes its place when it is polled."""
    key = definition.concurrency_key
    if key is None or definition.target.type == TargetType.TASK_QUEUE:
        return None
    return tenant_id, key


async def admit(connection: Connection, batch: ClaimBatch, fronts: HeldFronts) -> None:
    """Park what of the batch has no place. Free, where nothing has a key."""
    wanting = [(key, c) for c in batch.claims() if (key := key_of(c.tenant_id, c.definition)) is not None]
    if not wanting:
        return
    keys = sorted({key for key, _ in wanting})
    held = await places_taken(connection, keys, fronts)
    wishes = await _wishes(connection, wanting, keys, held)
    denied: set[int] = set()
    woken: list[tuple[uuid.UUID, Row]] = []
    for key in keys:
        running = held[key]
        for wish in sorted(wishes[key], key=lambda w: (w.due_us, w.order)):
            if running < wish.limit:
                running += 1
                if wish.parked is not None and wish.parked[-1]:
                    woken.append((key[0], wish.parked))
            elif wish.claim is not None:
                denied.add(id(wish.claim))
    await _write(connection, batch, [c for _, c in wanting], denied)
    if woken:
        rows = await fetch_all(
            connection,
            "concurrency_wake_runs",
            {
                "tenants": uuids([tenant for tenant, _ in woken]),
                "parents": uuids([row[1] for _, row in woken]),
                "instants": instants([from_datetime(row[2]) for _, row in woken]),
                "ordinals": int4s([row[3] for _, row in woken]),
                "never": NEVER,
            },
        )
        batch.nexts += [_member(row) for row in rows]


async def places_taken(connection: Connection, keys: Sequence[Key], fronts: HeldFronts) -> dict[Key, int]:
    """Lock these keys (sorted, each once) until the transaction ends, and count what is RUNNING. Whoever
    starts a run of a key does so after this, and says so with `hold`."""
    await _lock(connection, keys)
    return await _count(connection, keys, fronts)


async def admit_polled(
    connection: Connection, claims: Sequence[Claim], fronts: HeldFronts
) -> tuple[list[Claim], set[RunKey]]:
    """Of tasks that workers are about to get, the oldest first: those that take a place of their key (say
    so with `hold`), and which ones found none and are parked. Free, where none has a key."""
    wanting = [c for c in claims if c.definition.concurrency_key is not None]
    if not wanting:
        return [], set()
    held = await places_taken(connection, sorted({_key(c) for c in wanting}), fronts)
    holding: list[Claim] = []
    denied: list[Claim] = []
    for claim in sorted(wanting, key=lambda c: c.due_ms):
        if held[_key(claim)] < claim.definition.max_concurrent:
            held[_key(claim)] += 1
            holding.append(claim)
        else:
            denied.append(claim)
    if denied:
        await _park(connection, denied)
    return holding, {claim.key for claim in denied}


async def hold(connection: Connection, claims: Sequence[Claim]) -> None:
    """These, RUNNING since this transaction, take a place of their key."""
    await run(
        connection,
        "concurrency_hold",
        {**claim_keys(claims), **_limits(claims)},
    )


async def wake(connection: Connection, ended: Iterable[Key]) -> list[Member]:
    """So many runs of these keys have just ended in this transaction: the oldest parked ones are due."""
    places = Counter(ended)
    if not places:
        return []
    keys = sorted(places)
    await _lock(connection, keys)
    most = int4s([places[key] for key in keys])
    rows = await fetch_all(
        connection, "concurrency_wake", {**_key_columns(keys), "most": most, "never": NEVER}
    )
    return [_member(row) for row in rows]


class Concurrency(StoreBase):
    """`wake_parked`."""

    _key_place: Key = _FIRST

    async def wake_parked(self, *, host_id: int) -> Sequence[Member]:
        """See `ports.Store.wake_parked`."""
        place = {"tenant": self._key_place[0], "key": self._key_place[1], "limit": _KEYS, "never": NEVER}
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "concurrency_keys", place)
            self._key_place = (rows[-1][0], rows[-1][1]) if len(rows) == _KEYS else _FIRST
            limits = {(row[0], row[1]): row[2] for row in rows if row[2] > 0}
            held = await _count(connection, sorted(limits), self._held)
            free = {key: limit - held[key] for key, limit in limits.items() if limit > held[key]}
            if not free:
                return []
            members = await wake(connection, Counter(free).elements())
            if members:
                entry = Entry()
                for member in members:
                    name = f"{member.parent_id.hex}:{member.scheduled_for}:{member.ordinal}"
                    entry.intent(member.tenant_id, "run.wake", name, 0, 0)
                await self._journal.append(connection, host_id, entry)
            return members


async def _count(connection: Connection, keys: Sequence[Key], fronts: HeldFronts) -> dict[Key, int]:
    """What is RUNNING of each of these keys."""
    if not keys:
        return {}
    began = time.monotonic()
    starts = fronts.begin(keys, began)
    since = instants([from_datetime(start) for start in starts])
    rows = await fetch_all(connection, "concurrency_held", {**_key_columns(keys), "since": since})
    for i, _, first, at in rows:
        fronts.ended(keys[i - 1], starts[i - 1], first, at=at, now=began)
    return {keys[i - 1]: count for i, count, _, _ in rows}


async def _lock(connection: Connection, keys: Sequence[Key]) -> None:
    await run(connection, "concurrency_lock", _key_columns(keys))


async def _wishes(
    connection: Connection, wanting: Sequence[tuple[Key, Claim]], keys: Sequence[Key], held: dict[Key, int]
) -> dict[Key, list[_Wish]]:
    """Everybody who wants a place of these keys: the batch's own, and who waits already."""
    wishes: dict[Key, list[_Wish]] = {key: [] for key in keys}
    room = dict.fromkeys(keys, 0)
    mine = set()
    for key, claim in wanting:
        limit = claim.definition.max_concurrent
        order = (claim.key.parent_id.int, claim.key.scheduled_for, claim.key.ordinal)
        mine.add((claim.tenant_id, *order))
        wishes[key].append(_Wish(from_ms(claim.due_ms), order, limit, claim, None))
        room[key] = max(room[key], limit - held[key])
    open_ = [key for key in keys if room[key] > 0]
    if not open_:
        return wishes
    # Those of the batch may be among the waiting ones: so many more are asked for.
    most = int4s([room[key] + len(wishes[key]) for key in open_])
    rows = await fetch_all(
        connection, "concurrency_waiting", {**_key_columns(open_), "most": most, "never": NEVER}
    )
    for row in rows:
        i, parent, at, ordinal, due_at, limit, _ = row
        key = open_[i - 1]
        order = (parent.int, at, ordinal)
        if (key[0], *order) not in mine:
            wishes[key].append(_Wish(from_datetime(due_at), order, limit, None, row))
    return wishes


async def _write(
    connection: Connection, batch: ClaimBatch, wanting: Sequence[Claim], denied: set[int]
) -> None:
    parked = [insert for insert in batch.inserts if id(insert.claim) in denied]
    waiting = [claim for claim in batch.updates if id(claim) in denied]
    batch.inserts = [insert for insert in batch.inserts if id(insert.claim) not in denied]
    batch.updates = [claim for claim in batch.updates if id(claim) not in denied]
    batch.holding = [claim for claim in wanting if id(claim) not in denied]
    batch.parked = bool(denied)
    if parked:
        await run(connection, "concurrency_insert_parked", _parked_columns(parked))
    if waiting:
        await _park(connection, waiting)


async def _park(connection: Connection, waiting: Sequence[Claim]) -> None:
    columns = {**claim_keys(waiting), **_limits(waiting), "never": NEVER}
    await run(connection, "concurrency_park_runs", columns)


def _parked_columns(parked: Sequence[Insert]) -> dict[str, object]:
    claims = [insert.claim for insert in parked]
    return {
        **claim_keys(claims),
        **_limits(claims),
        "shards": int2s([c.shard for c in claims]),
        "priorities": int2s([c.priority for c in claims]),
        "versions": int4s([c.version for c in claims]),
        "dues": instants([insert.due for insert in parked]),
        "released": instants([from_ms(c.released_ms) if c.released_ms else None for c in claims]),
        "targets": labels([c.definition.target.label for c in claims]),
        "guards": bools([is_guarded(c) for c in claims]),
        "never": NEVER,
    }


def _key(claim: Claim) -> Key:
    return claim.tenant_id, claim.definition.concurrency_key or ""


def _limits(claims: Sequence[Claim]) -> dict[str, object]:
    return {
        "keys": texts([c.definition.concurrency_key for c in claims]),
        "most": int4s([c.definition.max_concurrent for c in claims]),
    }


def _key_columns(keys: Sequence[Key]) -> dict[str, object]:
    return {"tenants": uuids([tenant for tenant, _ in keys]), "keys": texts([key for _, key in keys])}


def _member(row: Row) -> Member:
    tenant, parent, at, ordinal, series, attempt, priority, shard, timer_at = row
    return Member(
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
