"""Beginning executions that somebody asked for: many requests in one transaction, each judged on its own."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from cells.domain import ids
from cells.ports import Fence, NotOwner, QuotaExceeded, TenantConfig
from cells.store.arrays import datetime_to_ms, texts, uuids
from cells.store.base import StoreBase
from cells.store.database import Connection, Row, run
from cells.store.journal import Entry
from cells.store.turns import start_executions
from cells.store.workflows import workflow_row
from cells.workflow_ports import NewExecution, WorkflowIdInUse, WorkflowRow

_encode = msgspec.json.Encoder().encode
_decode: Any = msgspec.json.Decoder().decode

Asked = tuple[Fence, NewExecution]
Begun = tuple[WorkflowRow, bool]
#: Whose, and which workflow id.
_Name = tuple[uuid.UUID, str]


class Starting(StoreBase):
    """`start_workflows`."""

    async def start_workflow(self, fence: Fence, new: NewExecution, *, host_id: int) -> Begun:
        """See `workflow_ports.WorkflowStore.start_workflow`."""
        (begun,) = await self.start_workflows([(fence, new)], host_id=host_id)
        if isinstance(begun, Exception):
            raise begun
        return begun

    async def start_workflows(self, asked: Sequence[Asked], *, host_id: int) -> Sequence[Begun | Exception]:
        """See `workflow_ports.WorkflowStore.start_workflows`."""
        names = [(fence.tenant_id, new.workflow_id) for fence, new in asked]
        outcomes: dict[int, Begun | Exception] = {}
        async with self._database.transaction() as connection:
            entry = Entry()
            found = await _looked_up(connection, names)
            owned, latest = found.owned, found.latest
            room: dict[uuid.UUID, int] = {}
            chosen: dict[_Name, tuple[int, NewExecution]] = {}
            twins: list[int] = []
            for i, ((fence, new), name) in enumerate(zip(asked, names, strict=True)):
                epoch, config = owned.get(fence.tenant_id, (0, None))
                before = latest.get(name)
                new = _begun_at(new, found.now_ms)
                if config is None or epoch != fence.epoch:
                    outcomes[i] = NotOwner(f"tenant {name[0]} is not active here under epoch {fence.epoch}")
                elif before is not None and (told := _told(before, new)) is not None:
                    outcomes[i] = told
                elif name in chosen:
                    twins.append(i)
                else:
                    limit = config.pending_timers
                    if name[0] not in room:
                        room[name[0]] = await self._pending.room(connection, name[0], limit)
                    if room[name[0]] <= 0:
                        outcomes[i] = QuotaExceeded("pending_timers", limit)
                        continue
                    room[name[0]] -= 1
                    chosen[name] = (i, new if before is None else _used_before(new))
            epochs = {name[0]: owned[name[0]][0] for name in chosen}
            rows = await _begin(connection, chosen, epochs, found.now_ms, entry)
            lost = [name for name in chosen if name not in rows]
            if lost:
                # Somebody else began one at this very moment.
                now = await _looked_up(connection, lost)
                for name in lost:
                    place, new = chosen[name]
                    outcomes[place] = _told(now.latest[name], new) or _in_use(new)
            for name, row in rows.items():
                outcomes[chosen[name][0]] = replace(row, previous=latest.get(name)), True
            for i in twins:
                first = outcomes[chosen[names[i]][0]]
                new = asked[i][1]
                outcomes[i] = first if isinstance(first, Exception) else _told(first[0], new) or _in_use(new)
            for outcome in outcomes.values():
                if not isinstance(outcome, Exception) and not outcome[1]:
                    # A start that is answered again is a write, too: it is confirmed as the first one was.
                    row = outcome[0]
                    entry.intent(row.tenant_id, "workflow.start.replay", row.workflow_id, 0, 0)
            async with connection.pipeline():
                await self._journal.append(connection, host_id, entry)
                await connection.commit()
        if rows:
            self.workflows_due()
        return [outcomes[i] for i in range(len(asked))]


class _Found(NamedTuple):
    """What starts are judged by."""

    owned: dict[uuid.UUID, tuple[int, TenantConfig]]  # tenants that are active here
    latest: dict[
        _Name, WorkflowRow
    ]  # the executions that workflow ids mean; of those that left, what is kept
    now_ms: int


async def _looked_up(connection: Connection, names: Sequence[_Name]) -> _Found:
    columns = {"tenants": uuids([t for t, _ in names]), "workflows": texts([name for _, name in names])}
    async with connection.pipeline():
        # First, as every transaction that writes for tenants: sealing waits for those that saw it pass.
        fences = await run(connection, "tenant_fences", {"tenants": uuids(list({t for t, _ in names}))})
        used = await run(connection, "workflow_used_of", columns)
        latest = await run(connection, "workflow_latest_of", columns)
        clock = await run(connection, "cell_clock")
    owned = {
        tenant: (epoch, msgspec.json.decode(config, type=TenantConfig))
        for tenant, epoch, config in await fences.fetchall()
    }
    rows = {names[row[0] - 1]: _left(names[row[0] - 1], row[1:]) for row in await used.fetchall()}
    for row in await latest.fetchall():
        rows[names[row[0] - 1]] = workflow_row(names[row[0] - 1][0], row[1:])
    ((now,),) = await clock.fetchall()
    return _Found(owned, rows, datetime_to_ms(now))


def _left(name: _Name, row: Row) -> WorkflowRow:
    """An execution that is in the lake, as far as a start that is said again is answered from it."""
    run_id, input_hash, definition, version, status, started_at, closed_at = row
    return WorkflowRow(
        tenant_id=name[0],
        run_id=run_id,
        workflow_id=name[1],
        shard=ids.shard_of(run_id),
        status=status,
        definition=definition,
        version=version,
        input_hash=input_hash,
        region_policy="",
        next_seq=0,
        epoch=0,
        takeovers=(),
        decide_at=None,
        timer_at=None,
        history_bytes=0,
        parent=None,
        started_at=started_at,
        closed_at=closed_at,
        result=None,
        error=None,
    )


async def _begin(
    connection: Connection,
    chosen: dict[_Name, tuple[int, NewExecution]],
    epochs: dict[uuid.UUID, int],
    now_ms: int,
    entry: Entry,
) -> dict[_Name, WorkflowRow]:
    """Executions that are there now."""
    if not chosen:
        return {}
    # One order of ids for all writers: they may wait for each other, never in a circle.
    order = sorted(chosen, key=lambda name: (name[0].int, name[1]))
    begun = [(name[0], epochs[name[0]], chosen[name][1]) for name in order]
    rows = {}
    for i in sorted(await start_executions(connection, begun, now_ms)):
        tenant, epoch, new = begun[i]
        row = _row(tenant, epoch, new, now_ms)
        entry.intent(tenant, "workflow.start", new.workflow_id, 0, 1)
        entry.history_bytes(tenant.hex, new.region_policy, row.history_bytes)
        rows[order[i]] = row
    return rows


def _told(before: WorkflowRow, new: NewExecution) -> Begun | WorkflowIdInUse | None:
    """What a start hears of the execution that its id means; None: it begins another one."""
    if before.input_hash == new.input_hash:
        return before, False
    if before.closed_at is None:
        return _in_use(new)
    return None if new.reuse else WorkflowIdInUse(f"a closed workflow had the id {new.workflow_id}")


def _in_use(new: NewExecution) -> WorkflowIdInUse:
    return WorkflowIdInUse(f"another workflow is open under the id {new.workflow_id}")


def _row(tenant_id: uuid.UUID, epoch: int, new: NewExecution, now_ms: int) -> WorkflowRow:
    """As it was just written."""
    at = ids.instant_of(now_ms)
    return WorkflowRow(
        tenant_id=tenant_id,
        run_id=new.run_id,
        workflow_id=new.workflow_id,
        shard=ids.shard_of(new.run_id),
        status="RUNNING",
        definition=new.definition,
        version=new.version,
        input_hash=new.input_hash,
        region_policy=new.region_policy,
        next_seq=len(new.events) + 1,
        epoch=epoch,
        takeovers=[[epoch, 1]],
        decide_at=at,
        timer_at=None,
        history_bytes=sum(len(data) for _, _, data in new.events),
        parent=new.parent,
        started_at=at,
        closed_at=None,
        result=None,
        error=None,
    )


def _begun_at(new: NewExecution, now_ms: int) -> NewExecution:
    """It begins by the database's clock, as everything that is recorded of it."""
    return replace(new, events=[(type_, now_ms, data) for type_, _, data in new.events])


def _used_before(new: NewExecution) -> NewExecution:
    """The id had an execution: keys of this one name it, so that no target takes them for the other's."""
    ((type_, at_ms, data),) = new.events
    started: dict[str, Any] = _decode(data)
    return replace(new, events=[(type_, at_ms, _encode({**started, "first": False}))])
