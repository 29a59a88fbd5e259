"""What people and others say to executions: signals, cancels, and changes of the history itself."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cells.domain import ids
from cells.domain.workflow.events import EVENT_LIMIT, FULL_BYTES, RESERVE, Event, EventType
from cells.domain.workflow.lateness import Waits
from cells.ports import Conflict, Fence, Retryable
from cells.store.arrays import blobs, datetime_to_ms, labels, uuids
from cells.store.base import StoreBase, fenced
from cells.store.database import Connection, fetch_all, fetch_one, fetch_row
from cells.store.engine import read_histories, take
from cells.store.idempotency import Keyed, keep, made_before
from cells.store.journal import Entry
from cells.store.turns import write_turns
from cells.store.workflows import read_workflow, workflow_row
from cells.workflow_ports import Signalled, SignalsWait, Taken, Turn, WorkflowRow

_decode: Any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class _Named(msgspec.Struct):
    """Of a signal, what it is called."""

    name: str


_named = msgspec.json.Decoder(_Named).decode
#: Executions that a word goes after, from one to the next.
_TRIES = 10
#: What may wait for one execution: as much as one turn records. So whoever floods one keeps nobody else
#: waiting for longer than that turn.
WAITING_LIMIT = 500
#: Statuses in which each word is heard.
_HEARD = {
    "CANCEL": frozenset({"RUNNING"}),
    "TERMINATE": frozenset({"RUNNING", "COMPENSATING", "COMPENSATION_STUCK"}),
    "RESOLVE": frozenset({"COMPENSATION_STUCK"}),
}


class WorkflowWords(StoreBase):
    """Writing for executions that have begun."""

    async def signal_workflow(
        self,
        fence: Fence,
        *,
        workflow_id: str,
        signal_id: str,
        name: str,
        payload: bytes,
        actor: str,
        host_id: int,
        again_only: bool = False,
    ) -> Signalled | None:
        """See `workflow_ports.WorkflowStore.signal_workflow`."""
        tenant = fence.tenant_id
        digest = hashlib.sha256(payload).digest()
        of_id = {"tenant": tenant, "workflow": workflow_id}
        async with self._database.transaction() as connection:
            await fenced(connection, fence)
            # What is refused or known is so without a lock: floods keep the engine from nothing.
            latest = await fetch_one(connection, "workflow_latest", of_id)
            if latest is None:
                return None
            key = {**of_id, "signal": signal_id, "run": latest[0]}
            if await _came_before(connection, key, (name, digest)):
                return Signalled(run_id=latest[0], status="duplicate")
            if again_only:
                return None
            item = _encode({"name": name, "signal_id": signal_id, "payload": msgspec.Raw(payload)})
            await _has_room(connection, workflow_row(tenant, latest), len(item))
            # Shared with others who signal; the engine passes the execution over meanwhile. So what is
            # said here of late is what the history will say.
            row = await _holder(connection, "workflow_share_latest", tenant, workflow_id)
            if row is None:
                return None
            key["run"] = row.run_id
            put = await fetch_one(connection, "workflow_signal_put", {**key, "name": name, "hash": digest})
            if put is None:
                await _came_before(connection, key, (name, digest))
                return Signalled(run_id=row.run_id, status="duplicate")
            await _has_room(connection, row, len(item))
            at_ms, position = await _put(connection, row, "SIGNAL", item)
            late = row.status != "RUNNING" or await _too_late(connection, row, name, at_ms, position)
            entry = Entry()
            entry.intent(tenant, "workflow.signal", workflow_id, row.next_seq, row.next_seq)
            await self._journal.append(connection, host_id, entry)
        self.workflows_due()
        return Signalled(run_id=row.run_id, status="late" if late else "accepted")

    async def tell_workflow(
        self,
        fence: Fence,
        *,
        workflow_id: str,
        kind: str,
        data: bytes,
        actor: str,
        host_id: int,
        run_id: uuid.UUID | None = None,
    ) -> WorkflowRow | None:
        """See `workflow_ports.WorkflowStore.tell_workflow`."""
        tenant = fence.tenant_id
        async with self._write(fence, host_id) as (connection, entry):
            entry.intent(tenant, f"workflow.{kind.lower()}", workflow_id, 0, 0)
            if run_id is None:
                row = await _holder(connection, "workflow_share_latest", tenant, workflow_id)
            else:
                row = await _one(connection, tenant, workflow_id, run_id)
            if row is None:
                return None
            if row.status not in _HEARD[kind]:
                other = None if run_id is None else await _open_one(connection, tenant, workflow_id)
                raise Conflict(f"the workflow is {row.status}" if other is None else _another(row, other))
            await _put(connection, row, kind, data)
            entry.event(tenant, f"workflow.{kind.lower()}", workflow_id, actor)
        self.workflows_due()
        return row

    async def change_workflow(
        self,
        fence: Fence,
        *,
        workflow_id: str,
        change: Callable[[Taken, Sequence[Event]], Turn],
        host_id: int,
        idempotency: tuple[str, str, bytes] | None = None,
    ) -> tuple[WorkflowRow, bool] | None:
        """See `workflow_ports.WorkflowStore.change_workflow`."""
        tenant = fence.tenant_id
        async with self._database.transaction() as connection:
            await fenced(connection, fence)
            before = await self._changed_before(connection, tenant, idempotency, host_id)
            if before is not None:
                return before, True
            held = await _holder(connection, "workflow_lock_latest", tenant, workflow_id)
            if held is None:
                return None
            # Who changed it under the key a moment ago had the lock until now.
            before = await self._changed_before(connection, tenant, idempotency, host_id)
            if before is not None:
                return before, True
            (taken,) = await take(connection, [(tenant, held.run_id)])
            (history,) = await read_histories(connection, [(tenant, held.run_id)])
            turn = change(_without_inbox(taken), history)
            entry = Entry()
            entry.intent(tenant, "workflow.change", workflow_id, taken.row.next_seq, taken.row.next_seq)
            await write_turns(connection, [turn], entry)
            shown = turn.successor.run_id if turn.successor is not None else held.run_id
            if idempotency is not None:
                await keep(connection, tenant, idempotency, _encode(shown), status=200)
            await self._journal.append(connection, host_id, entry)
            row = await read_workflow(connection, tenant, shown)
        self.workflows_due()
        return row, False

    async def _changed_before(
        self, connection: Connection, tenant: uuid.UUID, idempotency: Keyed | None, host_id: int
    ) -> WorkflowRow | None:
        """The execution that a change under that key came to. `KeyReused` where it was another change."""
        known = None if idempotency is None else await made_before(connection, tenant, idempotency)
        if known is None:
            return None
        row = await read_workflow(connection, tenant, msgspec.json.decode(known, type=uuid.UUID))
        # What is answered again is a write, too: it is confirmed as the first one was.
        entry = Entry()
        entry.intent(tenant, "workflow.change.replay", row.workflow_id, 0, 0)
        await self._journal.append(connection, host_id, entry)
        return row


def _without_inbox(taken: Taken) -> Taken:
    """What waits is recorded by the engine, behind the change."""
    return Taken(
        row=taken.row,
        holds_id=taken.holds_id,
        ownership_epoch=taken.ownership_epoch,
        config=taken.config,
        now_ms=taken.now_ms,
        inbox=(),
    )


async def _put(connection: Connection, row: WorkflowRow, kind: str, data: bytes) -> tuple[int, int]:
    """Into the inbox; when that was (epoch milliseconds), and its place there."""
    columns = {
        "tenants": uuids([row.tenant_id]),
        "runs": uuids([row.run_id]),
        "kinds": labels([kind]),
        "data": blobs([data]),
    }
    at, position = await fetch_row(connection, "workflow_put_word", columns)
    return datetime_to_ms(at), position


async def _holder(
    connection: Connection, lock: str, tenant: uuid.UUID, workflow_id: str
) -> WorkflowRow | None:
    """The execution that a workflow id means, locked. While the lock was waited for it may have gone on in
    another one: that one is meant then."""
    key = {"tenant": tenant, "workflow": workflow_id}
    for _ in range(_TRIES):
        held = await fetch_one(connection, lock, key)
        latest = await fetch_one(connection, "workflow_latest", key)
        if held is None or latest is None:
            return None
        if held[0] == latest[0]:
            return workflow_row(tenant, latest)
    raise Retryable(f"{workflow_id} goes on in another execution again and again")


async def _one(
    connection: Connection, tenant: uuid.UUID, workflow_id: str, run_id: uuid.UUID
) -> WorkflowRow | None:
    """One of its executions, kept from being appended to."""
    key = {"tenant": tenant, "workflow": workflow_id, "run": run_id}
    held = await fetch_one(connection, "workflow_share", key)
    return None if held is None else await read_workflow(connection, tenant, run_id)


async def _open_one(connection: Connection, tenant: uuid.UUID, workflow_id: str) -> WorkflowRow | None:
    latest = await fetch_one(connection, "workflow_latest", {"tenant": tenant, "workflow": workflow_id})
    row = None if latest is None else workflow_row(tenant, latest)
    return row if row is not None and row.closed_at is None else None


def _another(row: WorkflowRow, other: WorkflowRow) -> str:
    run_id = ids.encode(ids.WORKFLOW_RUN, other.run_id)
    return f"that execution is {row.status}; another one is under way under the id: {run_id}"


async def _came_before(connection: Connection, key: dict[str, Any], said: tuple[str, bytes]) -> bool:
    """Whether the execution's chain took that signal. `Conflict` where it said something else."""
    before = await fetch_one(connection, "workflow_signal_get", key)
    if before is not None and before != said:
        raise Conflict(f"the signal {key['signal']} came before, with another name or payload")
    return before is not None


async def _has_room(connection: Connection, row: WorkflowRow, size: int) -> None:
    """Whether another signal may wait for an execution. Raises `Conflict`, `SignalsWait`."""
    waiting, waiting_bytes = await fetch_row(
        connection, "workflow_waiting", {"tenant": row.tenant_id, "run": row.run_id, "limit": WAITING_LIMIT}
    )
    if row.next_seq > EVENT_LIMIT - RESERVE or row.history_bytes + waiting_bytes + size > FULL_BYTES:
        raise Conflict("the history is full: no more signals are taken")
    if waiting >= WAITING_LIMIT:
        raise SignalsWait(f"{WAITING_LIMIT} words wait for the workflow; try again in a moment")


async def _too_late(connection: Connection, row: WorkflowRow, name: str, at_ms: int, position: int) -> bool:
    """Whether that signal, which was put into the inbox then, is recorded behind its wait's time."""
    key = {"tenant": row.tenant_id, "run": row.run_id}
    begun = await fetch_all(connection, "workflow_waits", {**key, "signals": False})
    if not any(_times(type_, data, name) for _, type_, data in begun):
        return False  # nothing that waited for it has a time that ends
    waits = Waits(name)
    found = await fetch_all(connection, "workflow_waits", {**key, "signals": True})
    waits.read((type_, _decode(data)) for _, type_, data in found)
    before = [
        datetime_to_ms(at)
        for data, at in await fetch_all(connection, "workflow_waiting_signals", {**key, "position": position})
        if _named(data).name == name
    ]
    return waits.late(at_ms, before)


def _times(type_: str, data: bytes, name: str) -> bool:
    if type_ == EventType.COMPENSATION_STARTED:
        return True
    event = _decode(data) if type_ == EventType.WAIT_STARTED else {}
    return event.get("name") == name and "fire_at" in event
