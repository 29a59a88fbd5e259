"""What people and others say to executions: signals, cancels, and changes of the history itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cells.domain.workflow.events import EVENT_LIMIT, RESERVE, Event
from cells.ports import Conflict, Fence
from cells.store.arrays import blobs, datetime_to_ms, labels, uuids
from cells.store.base import StoreBase, fenced
from cells.store.database import Connection, Row, fetch_all, fetch_one, fetch_row
from cells.store.engine import read_histories, take
from cells.store.journal import Entry
from cells.store.turns import write_turns
from cells.store.workflows import read_workflow
from cells.workflow_ports import Signalled, SignalsWait, Taken, Turn, WorkflowRow

_decode: Any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
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
    ) -> Signalled | None:
        """See `workflow_ports.WorkflowStore.signal_workflow`."""
        tenant = fence.tenant_id
        digest = hashlib.sha256(payload).digest()
        async with self._database.transaction() as connection:
            await fenced(connection, fence)
            # Shared with others who signal; the engine passes the execution over meanwhile. So what is
            # said here of late is what the history will say.
            held = await fetch_one(
                connection, "workflow_share_latest", {"tenant": tenant, "workflow": workflow_id}
            )
            if held is None:
                return None
            row = await read_workflow(connection, tenant, held[0])
            key = {"tenant": tenant, "workflow": workflow_id, "signal": signal_id}
            put = await fetch_one(
                connection,
                "workflow_signal_put",
                {**key, "name": name, "hash": digest, "run": row.run_id},
            )
            if put is None:
                before = await fetch_row(connection, "workflow_signal_get", key)
                if before != (name, digest):
                    raise Conflict(f"the signal {signal_id} came before, with another name or payload")
                return Signalled(run_id=row.run_id, status="duplicate")
            if row.next_seq > EVENT_LIMIT - RESERVE:
                raise Conflict("the history is full: no more signals are taken")
            of_row: dict[str, object] = {"tenant": tenant, "run": row.run_id}
            (waiting,) = await fetch_row(connection, "workflow_waiting", {**of_row, "limit": WAITING_LIMIT})
            if waiting >= WAITING_LIMIT:
                raise SignalsWait(f"{WAITING_LIMIT} words wait for the workflow; try again in a moment")
            waits = await fetch_all(connection, "workflow_waits", {**of_row, "signals": False})
            if any(type_ == "WAIT_STARTED" and _decode(data)["name"] == name for _, type_, data in waits):
                waits = await fetch_all(connection, "workflow_waits", {**of_row, "signals": True})
            item = _encode({"name": name, "signal_id": signal_id, "payload": msgspec.Raw(payload)})
            at_ms = await _put(connection, row, "SIGNAL", item)
            late = row.closed_at is not None or row.status != "RUNNING" or _too_late(waits, name, at_ms)
            entry = Entry()
            entry.intent(tenant, "workflow.signal", workflow_id, row.next_seq, row.next_seq)
            await self._journal.append(connection, host_id, entry)
        self.workflows_due()
        return Signalled(run_id=row.run_id, status="late" if late else "accepted")

    async def tell_workflow(
        self, fence: Fence, *, workflow_id: str, kind: str, data: bytes, actor: str, host_id: int
    ) -> WorkflowRow | None:
        """See `workflow_ports.WorkflowStore.tell_workflow`."""
        tenant = fence.tenant_id
        async with self._write(fence, host_id) as (connection, entry):
            held = await fetch_one(
                connection, "workflow_share_latest", {"tenant": tenant, "workflow": workflow_id}
            )
            entry.intent(tenant, f"workflow.{kind.lower()}", workflow_id, 0, 0)
            if held is None:
                return None
            row = await read_workflow(connection, tenant, held[0])
            if row.status not in _HEARD[kind]:
                raise Conflict(f"the workflow is {row.status}")
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
    ) -> WorkflowRow | None:
        """See `workflow_ports.WorkflowStore.change_workflow`."""
        tenant = fence.tenant_id
        async with self._database.transaction() as connection:
            await fenced(connection, fence)
            held = await fetch_one(
                connection, "workflow_lock_latest", {"tenant": tenant, "workflow": workflow_id}
            )
            if held is None:
                return None
            (taken,) = await take(connection, [(tenant, held[0])])
            (history,) = await read_histories(connection, [(tenant, held[0])])
            turn = change(_without_inbox(taken), history)
            entry = Entry()
            entry.intent(tenant, "workflow.change", workflow_id, taken.row.next_seq, taken.row.next_seq)
            await write_turns(connection, [turn], entry)
            await self._journal.append(connection, host_id, entry)
            shown = turn.successor.run_id if turn.successor is not None else held[0]
            row = await read_workflow(connection, tenant, shown)
        self.workflows_due()
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


async def _put(connection: Connection, row: WorkflowRow, kind: str, data: bytes) -> int:
    """Into the inbox; when that was, epoch milliseconds."""
    columns = {
        "tenants": uuids([row.tenant_id]),
        "runs": uuids([row.run_id]),
        "kinds": labels([kind]),
        "data": blobs([data]),
    }
    (at,) = await fetch_row(connection, "workflow_put_word", columns)
    return datetime_to_ms(at)


def _too_late(waits: Sequence[Row], name: str, at_ms: int) -> bool:
    """Whether a wait for that signal has timed out, or is to by now: events are recorded in the order of
    their time."""
    timers: dict[str, int | None] = {}
    late = False
    for _, type_, data in waits:
        event = _decode(data)
        if type_ == "COMPENSATION_STARTED":
            return True
        if type_ == "WAIT_STARTED" and event["name"] == name:
            timers[event["step"]] = event.get("fire_at")
        elif type_ == "TIMER_FIRED" and event["step"] in timers:
            late = True
            del timers[event["step"]]
        elif type_ == "SIGNAL_RECEIVED" and event["name"] == name and timers:
            del timers[next(iter(timers))]
    return late or any(at is not None and at <= at_ms for at in timers.values())
