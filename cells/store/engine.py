"""Rounds of the engine: lock executions that are due, have them decided, write, commit."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from cells.domain.workflow.events import Event
from cells.ports import TenantConfig
from cells.store.arrays import datetime_to_ms, int2s, int4s, texts, uuids
from cells.store.base import StoreBase
from cells.store.database import Connection, Row, fetch_all, fetch_one, run
from cells.store.journal import Entry
from cells.store.turns import write_turns
from cells.store.workflows import workflow_row
from cells.workflow_ports import InboxItem, Planner, Stepped, Taken, Turn

#: Inbox rows of one execution that one round takes.
ITEMS_EACH = 500
_data: Any = msgspec.json.Decoder(dict[str, Any]).decode
_config = msgspec.json.Decoder(TenantConfig).decode
#: A child's definition may be named by a definition that is only known now.
_ROUNDS = 3

Key = tuple[uuid.UUID, uuid.UUID]


class Engine(StoreBase):
    """`step_workflows` and what goes with it."""

    async def engine_hosts(self) -> Sequence[int]:
        """See `workflow_ports.WorkflowStore.engine_hosts`."""
        async with self._database.transaction() as connection:
            return [row[0] for row in await fetch_all(connection, "engine_hosts")]

    async def next_workflow_timer(self, shards: Sequence[int]) -> datetime | None:
        """See `workflow_ports.WorkflowStore.next_workflow_timer`."""
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "engine_next_timer", {"shards": int2s(shards)})
        return None if row is None else row[0]

    async def step_workflows(
        self,
        planner: Planner,
        *,
        shards: Sequence[int],
        but_not: Sequence[uuid.UUID],
        limit: int,
        host_id: int,
    ) -> Stepped:
        """See `workflow_ports.WorkflowStore.step_workflows`."""
        async with self._database.transaction() as connection:
            due = await fetch_all(
                connection,
                "engine_due",
                {"shards": int2s(shards), "but_not": uuids(but_not), "items": 4 * limit, "limit": limit},
            )
            keys = list(dict.fromkeys((tenant, run_id) for tenant, run_id in due))
            more = len(keys) > limit or len(due) >= 4 * limit
            keys = keys[:limit]
            if not keys:
                return Stepped(taken=0, turns=(), members=(), offered=(), more=False)
            taken = await take(connection, keys)
            turns = await self._planned(connection, planner, taken)
            if not turns:
                return Stepped(taken=len(taken), turns=(), members=(), offered=(), more=False)
            entry = Entry()
            written = await write_turns(connection, turns, entry)
            async with connection.pipeline():
                await self._journal.append(connection, host_id, entry)
                await connection.commit()
        return Stepped(
            taken=len(taken), turns=turns, members=written.members, offered=written.offered, more=more
        )

    async def _planned(self, connection: Connection, planner: Planner, taken: Sequence[Taken]) -> list[Turn]:
        new = [t for t in taken if not planner.knows(t.row)]
        if new:
            histories = await read_histories(connection, [(t.row.tenant_id, t.row.run_id) for t in new])
            for t, events in zip(new, histories, strict=True):
                planner.remember(t.row, events)
        for _ in range(_ROUNDS):
            wanted = {(t.row.tenant_id, *name) for t in taken for name in planner.wanted(t)}
            if not wanted:
                break
            await _learn(connection, planner, sorted(wanted))
        return [turn for t in taken if (turn := planner.plan(t)) is not None]


async def take(connection: Connection, keys: Sequence[Key]) -> list[Taken]:
    """Lock executions, as far as nobody else has, and read what waits for them."""
    columns = {"tenants": uuids([tenant for tenant, _ in keys]), "runs": uuids([r for _, r in keys])}
    async with connection.pipeline():
        # The inbox is read by a later statement than the lock: what the last holder recorded is gone.
        locked = await run(connection, "engine_lock", columns)
        waiting = await run(connection, "engine_inbox", {**columns, "each": ITEMS_EACH})
    inbox: defaultdict[int, list[InboxItem]] = defaultdict(list)
    for i, position, kind, data, at in await waiting.fetchall():
        inbox[i].append(InboxItem(position=position, kind=kind, data=data, at_ms=datetime_to_ms(at)))
    return [_taken(keys[row[0] - 1][0], row, inbox[row[0]]) for row in await locked.fetchall()]


async def read_histories(connection: Connection, keys: Sequence[Key]) -> list[list[Event]]:
    """Whole histories, in the order of the keys."""
    columns = {"tenants": uuids([tenant for tenant, _ in keys]), "runs": uuids([r for _, r in keys])}
    histories: list[list[Event]] = [[] for _ in keys]
    for i, seq, type_, at, data in await fetch_all(connection, "engine_histories", columns):
        histories[i - 1].append(
            Event(seq=seq, type=type_, at=datetime_to_ms(at), data=_data(data), size=len(data))
        )
    return histories


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
