"""Rounds of the engine: lock executions that are due, have them decided, write, commit."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import msgspec

from cells.contract import SHARDS
from cells.domain.workflow.events import Event
from cells.ports import Conflict, Retryable, TenantConfig
from cells.store.arrays import bools, datetime_to_ms, int4s, texts, uuids
from cells.store.base import StoreBase
from cells.store.database import Connection, MappedErrors, Row, fetch_all, fetch_one, run
from cells.store.fronts import BEGINNING
from cells.store.journal import Entry
from cells.store.slow_deciding import Key, SlowDeciding
from cells.store.turns import write_turns
from cells.store.workflows import workflow_row
from cells.workflow_ports import InboxItem, Planner, Stepped, Taken, Turn

#: Of what waits so many times as many are looked at as are taken: tenants take turns among them.
ITEMS = 8
#: Timers that are asked for, if nobody says how far ahead: of a century.
TIMERS_AHEAD_MS = 100 * 365 * 86_400_000
#: Inbox rows of one execution that one round takes.
ITEMS_EACH = 500
#: Bytes that one round reads of what waits, and of histories that are not remembered; of one always.
INBOX_BYTES = 16 << 20
HISTORY_BYTES = 32 << 20
_data: Any = msgspec.json.Decoder(dict[str, Any]).decode
_config = lru_cache(maxsize=4096)(msgspec.json.Decoder(TenantConfig).decode)
#: A child's definition may be named by a definition that is only known now.
_ROUNDS = 3


class _Unwritten(Exception):
    """What these executions do could not be decided in time, or not be written. Its cause says why."""

    def __init__(self, keys: Sequence[Key], fault: Exception) -> None:
        super().__init__(str(fault))
        self.keys = keys
        self.fault = fault


class Engine(StoreBase):
    """`step_workflows` and what goes with it."""

    async def engine_hosts(self) -> Sequence[int]:
        """See `workflow_ports.WorkflowStore.engine_hosts`."""
        async with self._database.transaction() as connection:
            return [row[0] for row in await fetch_all(connection, "engine_hosts")]

    async def next_workflow_timer(
        self,
        shards: Sequence[int],
        but_not: Sequence[uuid.UUID] = (),
        *,
        within_ms: int = TIMERS_AHEAD_MS,
        anew: bool = True,
    ) -> datetime | None:
        """See `workflow_ports.WorkflowStore.next_workflow_timer`."""
        columns = {
            "mine": _mine(shards),
            "but_not": uuids(but_not),
            "within": within_ms,
            "since": BEGINNING if anew else self._to_step.since(),
        }
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "engine_next_timer", columns)
        return None if row is None else row[0]

    async def step_workflows(
        self,
        planner: Planner,
        *,
        shards: Sequence[int],
        but_not: Sequence[uuid.UUID],
        limit: int,
        host_id: int,
        anew: bool = True,
        also: Sequence[tuple[uuid.UUID, uuid.UUID]] = (),
    ) -> Stepped:
        """See `workflow_ports.WorkflowStore.step_workflows`."""
        if anew:
            self._to_step.came(0, BEGINNING)
        try:
            async with self._database.transaction() as connection:
                due = await self._due(connection, shards, but_not, limit)
                keys = _in_turn(dict.fromkeys((*also, *((tenant, run_id) for tenant, run_id, _ in due))))
                more = len(keys) > limit or len(due) >= ITEMS * limit
                if not keys:
                    return _NOTHING
                return await self._step(connection, planner, keys[:limit], host_id, more=more)
        except _Unwritten as unwritten:
            return await self._halved(planner, unwritten, host_id)

    async def _due(
        self, connection: Connection, shards: Sequence[int], but_not: Sequence[uuid.UUID], limit: int
    ) -> list[Row]:
        """What waits for an engine: tenant, run, since when."""
        at, began = datetime.now(UTC), time.monotonic()
        (since,) = self._to_step.begin(began)
        columns = {
            "mine": _mine(shards),
            "but_not": uuids(but_not),
            "items": ITEMS * limit,
            "limit": limit,
            "since": since,
        }
        due = await fetch_all(connection, "engine_due", columns)
        now = time.monotonic()
        first = min((row[2] for row in due if row[2] is not None), default=None)
        self._to_step.ended([first], at=at, now=now, took=now - began)
        return due

    async def _step(
        self, connection: Connection, planner: Planner, keys: Sequence[Key], host_id: int, *, more: bool
    ) -> Stepped:
        slow = SlowDeciding()
        try:
            with MappedErrors():
                found = await _take_some(connection, keys)
                if len(found) < len(keys):
                    await fetch_all(connection, "engine_strays", _columns(keys))
                taken, new = _that_fit(planner, found)
                turns = await self._planned(connection, planner, taken, new, slow)
                if not turns:
                    return replace(_NOTHING, taken=len(taken))
                more = more or len(turns) < len(taken)
                return await self._written(connection, planner, taken, turns, host_id, more=more)
        except Retryable as fault:
            if not slow.is_why(fault):
                raise
            # The same again would take as long, for ever, and keep everybody else up.
            planner.forget((tenant.int, run_id.int) for tenant, run_id in keys)
            raise _Unwritten([slow.key] if slow.key is not None else keys, fault) from fault

    async def _written(
        self,
        connection: Connection,
        planner: Planner,
        taken: Sequence[Taken],
        turns: Sequence[Turn],
        host_id: int,
        *,
        more: bool,
    ) -> Stepped:
        entry = Entry()
        try:
            with MappedErrors():
                written = await write_turns(connection, turns, entry)
                async with connection.pipeline():
                    await self._journal.append(connection, host_id, entry)
                    await connection.commit()
        except (Retryable, Conflict):
            raise
        except Exception as fault:
            planner.forget((t.row.tenant_id.int, t.row.run_id.int) for t in taken)
            raise _Unwritten([(t.row.tenant_id, t.row.run_id) for t in taken], fault) from fault
        return Stepped(
            taken=len(taken), turns=turns, members=written.members, offered=written.offered, more=more
        )

    async def _halved(self, planner: Planner, unwritten: _Unwritten, host_id: int) -> Stepped:
        """The same in halves, down to the execution that cannot be written: that one is put off."""
        keys = unwritten.keys
        if len(keys) == 1:
            async with self._database.transaction() as connection:
                again = await take(connection, keys)
                turns = [planner.put_off(t, unwritten.fault) for t in again]
                if not turns:
                    return _NOTHING
                return await self._written(connection, planner, again, turns, host_id, more=False)
        parts = []
        for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
            try:
                async with self._database.transaction() as connection:
                    parts.append(await self._step(connection, planner, half, host_id, more=True))
            except _Unwritten as smaller:
                parts.append(await self._halved(planner, smaller, host_id))
        return Stepped(
            taken=sum(part.taken for part in parts),
            turns=[turn for part in parts for turn in part.turns],
            members=[member for part in parts for member in part.members],
            offered=[offer for part in parts for offer in part.offered],
            more=True,
        )

    async def _planned(
        self,
        connection: Connection,
        planner: Planner,
        taken: Sequence[Taken],
        new: Sequence[Taken],
        slow: SlowDeciding,
    ) -> list[Turn]:
        """What each does. Where deciding fails, that one is put off, and nothing else. What there is no time
        for stays as due as it is."""
        turns: list[Turn] = []

        def each(some: Iterable[Taken], do: Callable[[Taken], object]) -> list[Taken]:
            """Those for which it went well."""
            well = []
            for t in some:
                try:
                    do(t)
                except Exception as fault:  # noqa: BLE001 - logged and counted where it is put off
                    turns.append(planner.put_off(t, fault))
                else:
                    well.append(t)
            return well

        def remember(t: Taken) -> None:
            planner.remember(t.row, _events(histories[t.row.run_id]))

        def ask(t: Taken) -> None:
            wanted.update((t.row.tenant_id, *name) for name in planner.wanted(t))

        def plan(t: Taken) -> None:
            if slow.has_time():
                with slow.measured((t.row.tenant_id, t.row.run_id)):
                    turn = planner.plan(t)
                if turn is not None:
                    turns.append(turn)

        able = list(taken)
        if new:
            keys = [(t.row.tenant_id, t.row.run_id) for t in new]
            rows = await _history_rows(connection, keys)
            histories = {run_id: found for (_, run_id), found in zip(keys, rows, strict=True)}
            read = {t.row.run_id for t in each(new, remember)}
            able = [t for t in taken if t.row.run_id in read or t.row.run_id not in histories]
        for _ in range(_ROUNDS):
            wanted: set[tuple[uuid.UUID, str, int]] = set()
            able = each(able, ask)
            if not wanted:
                break
            await _learn(connection, planner, sorted(wanted))
        each(able, plan)
        return turns


def _mine(shards: Sequence[int]) -> object:
    """Shard by shard, whether it is one of them: found at its place, whereas a list would be searched."""
    some = frozenset(shards)
    return bools([shard in some for shard in range(SHARDS)])


def _in_turn(keys: Iterable[Key]) -> list[Key]:
    """Each tenant's first ones, then their second ones, and so on: nobody waits behind another's many."""
    of_tenant: defaultdict[uuid.UUID, list[Key]] = defaultdict(list)
    for key in keys:
        of_tenant[key[0]].append(key)
    if len(of_tenant) == 1:
        return next(iter(of_tenant.values()))
    turns = zip_longest(*of_tenant.values())
    return [key for turn in turns for key in turn if key is not None]


_NOTHING = Stepped(taken=0, turns=(), members=(), offered=(), more=False)


def _that_fit(planner: Planner, some: Sequence[Taken]) -> tuple[list[Taken], list[Taken]]:
    """Those whose histories a round may read together, or remembers; and those it must read. The others
    stay as due as they are."""
    taken: list[Taken] = []
    new: list[Taken] = []
    size = 0
    for t in some:
        if not planner.knows(t.row):
            if new and size + t.row.history_bytes > HISTORY_BYTES:
                continue
            size += t.row.history_bytes
            new.append(t)
        taken.append(t)
    return taken, new


def _columns(keys: Sequence[Key]) -> dict[str, object]:
    return {"tenants": uuids([tenant for tenant, _ in keys]), "runs": uuids([r for _, r in keys])}


async def take(connection: Connection, keys: Sequence[Key]) -> list[Taken]:
    """Lock executions, as far as nobody else has, and read what waits for them, or the beginning of it."""
    return [taken for taken, _ in await _take(connection, keys)]


async def _take_some(connection: Connection, keys: Sequence[Key]) -> list[Taken]:
    """The same without those whose inboxes did not fit. Where a part of one did, its time ends with that
    part: timers that are due later come behind what was not read yet."""
    some = []
    for taken, cut in await _take(connection, keys):
        if not cut:
            some.append(taken)
        elif taken.inbox:
            until = min(taken.now_ms, max(item.at_ms for item in taken.inbox))
            some.append(replace(taken, now_ms=until))
    return some


async def _take(connection: Connection, keys: Sequence[Key]) -> list[tuple[Taken, bool]]:
    """In the order of the keys; and whether more may wait than was read."""
    columns = _columns(keys)
    async with connection.pipeline():
        # The inbox is read by a later statement than the lock: what the last holder recorded is gone.
        locked = await run(connection, "engine_lock", columns)
        waiting = await run(connection, "engine_inbox", {**columns, "each": ITEMS_EACH, "bytes": INBOX_BYTES})
    inbox: defaultdict[int, list[InboxItem]] = defaultdict(list)
    cut = set()
    for i, position, kind, data, at in await waiting.fetchall():
        if data is None:
            cut.add(i)
        else:
            inbox[i].append(InboxItem(position=position, kind=kind, data=data, at_ms=datetime_to_ms(at)))
            if len(inbox[i]) == ITEMS_EACH:
                cut.add(i)
    rows = sorted(await locked.fetchall(), key=lambda row: row[0])
    return [(_taken(keys[row[0] - 1][0], row, inbox[row[0]]), row[0] in cut) for row in rows]


async def read_histories(connection: Connection, keys: Sequence[Key]) -> list[list[Event]]:
    """Whole histories, in the order of the keys."""
    return [_events(rows) for rows in await _history_rows(connection, keys)]


async def _history_rows(connection: Connection, keys: Sequence[Key]) -> list[list[Row]]:
    columns = _columns(keys)
    histories: list[list[Row]] = [[] for _ in keys]
    for row in await fetch_all(connection, "engine_histories", columns):
        histories[row[0] - 1].append(row)
    return histories


def _events(rows: Iterable[Row]) -> list[Event]:
    return [
        Event(seq=seq, type=type_, at=datetime_to_ms(at), data=_data(data), size=len(data))
        for _, seq, type_, at, data in rows
    ]


async def _learn(
    connection: Connection, planner: Planner, wanted: Sequence[tuple[uuid.UUID, str, int]]
) -> None:
    rows = await fetch_all(
        connection,
        "definition_sources",
        {
            "tenants": uuids([tenant for tenant, _, _ in wanted]),
            "names": texts([name for _, name, _ in wanted]),
            "versions": int4s([version for _, _, version in wanted]),
        },
    )
    found = {i: (version, source) for i, version, source in rows}
    for i, (tenant, name, asked) in enumerate(wanted, 1):
        version, source = found.get(i, (0, ""))
        planner.learn(tenant, name, asked, version, source)


def _taken(tenant_id: uuid.UUID, row: Row, inbox: Sequence[InboxItem]) -> Taken:
    holds_id, epoch, config, now = row[20:]
    return Taken(
        row=workflow_row(tenant_id, row[1:20]),
        holds_id=holds_id,
        ownership_epoch=epoch,
        config=_config(config),
        now_ms=datetime_to_ms(now),
        inbox=inbox,
    )
