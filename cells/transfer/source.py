"""The side that a tenant leaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import psycopg

from cells.ports import Conflict
from cells.store.transfer import application_of
from cells.transfer.steps import Step, looks, password
from cells.transfer.tables import COPIED, PUBLISHED
from cells.transfer_ports import Answer

#: Rows deleted in one transaction, and how long one call of `clean` works (seconds).
PAGE, CLEAN_SECONDS = 5000, 2.0
_STATS = "stats"


async def publish(step: Step, key: bytes) -> Answer:
    """Hold the tenant under this move and begin to keep its changes. What an earlier attempt left goes
    first: a cell that was taken over may lack rows that were acknowledged."""
    store, connection, order = step.store, step.connection, step.order
    held = await store.row(connection, "transfer_hold", tenant=step.tenant, move=step.move, epoch=order.epoch)
    if held is None:
        raise Conflict(f"the tenant is not at home here under epoch {order.epoch}, or another move holds it")
    apart = await store.rows(connection, "transfer_kept_apart", tenant=step.tenant)
    if apart:
        numbers = ", ".join(str(number) for (number,) in apart)
        raise Conflict(
            f"jobs or workflows of the tenant are kept in one region alone (store {numbers}), and cannot move"
        )
    row = await step.row()
    if row is None or row.attempt < order.attempt or row.taken_over or row.state in ("PREPARED", "UNDONE"):
        if row is not None:
            await store.unlink(connection, row.link)
        await store.unlink(connection, order.link)
        begun = await store.open(
            connection, step.tenant, step.move, step.side,
            attempt=order.attempt, peer=order.peer, epoch=order.epoch, link=order.link,
        )  # fmt: skip
        if not begun:
            raise Conflict("another attempt of this move is under way here")
        secret = password(key, order.link)
        await store.rows(
            connection,
            "transfer_publish",
            link=order.link,
            tenant=step.tenant,
            tables=list(PUBLISHED),
            password=secret,
        )
        # After the publication: whoever reads the log from here on finds it.
        await store.rows(connection, "link_slot", link=order.link)
        await step.go(("PREPARED",), "PUBLISHED")
    else:
        await step.current()
    epoch, _, schema, days, lsn = await store.row(connection, "link_schema") or (0, "", "", [], "")
    counts = await store.rows(connection, "transfer_counts", tenant=step.tenant, tables=list(COPIED))
    return {
        "cell_epoch": epoch,
        "schema": schema,
        "days": days or [],
        "conninfo": store.address(),
        "rows": dict(counts),
        "lsn": lsn,
    }


async def barrier(step: Step) -> Answer:
    """Nothing new begins; lifts itself at its deadline."""
    await step.current()
    raised = await step.store.row(
        step.connection, "transfer_barrier",
        tenant=step.tenant, move=step.move, epoch=step.order.epoch, ms=step.order.barrier_ms,
    )  # fmt: skip
    if raised is None:
        raise Conflict("the tenant cannot be held back: it is not under this move and epoch")
    return {"until": raised[0].isoformat()}


async def seal(step: Step, fold: Callable[[], Awaitable[int]]) -> Answer:
    """Write nothing more. Complete when no transaction of the cell is open that began before: it may have
    seen the tenant open. If that does not come in time, the seal is broken again and nothing has happened."""
    row = await step.current()
    if row.state == "SEALED" and row.sealed_lsn is not None:
        return {"lsn": row.sealed_lsn}
    store, connection, order = step.store, step.connection, step.order
    values = {"tenant": step.tenant, "move": step.move, "epoch": order.epoch}
    await step.go(("PUBLISHED", "BARRIER"), "BARRIER", peer_url=order.peer_url)
    if await store.row(connection, "transfer_seal", **values) is None:
        await step.go(("BARRIER",), "PUBLISHED")
        raise Conflict("the barrier is down: its time was over")
    try:
        since = await store.one(connection, "link_clock")
        await _quiet(step, since)
        await _folded(step, fold)
        lsn: str = await store.one(connection, "transfer_mark", tenant=step.tenant, move=step.move)
        await _flushed(step, lsn)
    except Conflict:
        await store.row(connection, "transfer_unseal", **values)
        await step.go(("BARRIER",), "PUBLISHED")
        raise
    facts = f'{{"sealed_at": "{datetime.now(UTC).isoformat()}"}}'
    await store.row(connection, "transfer_sealed", tenant=step.tenant, move=step.move, lsn=lsn, facts=facts)
    return {"lsn": lsn}


async def _quiet(step: Step, since: datetime) -> None:
    application = application_of(step.store.cell_name)
    still = 0
    async for _ in looks(step.order.patience_ms):
        still = await step.store.one(step.connection, "link_open_since", application=application, at=since)
        if not still:
            return
    raise Conflict(f"{still} transactions of this cell that began before the seal are still open")


async def _folded(step: Step, fold: Callable[[], Awaitable[int]]) -> None:
    """What was journalled for the tenant is in its statistics, which move along."""
    wanted = await step.store.one(step.connection, "link_journal_end")
    async for _ in looks(step.order.patience_ms):
        await fold()
        if await step.store.one(step.connection, "link_folded", reader=_STATS, until=wanted):
            return
    raise Conflict("the statistics could not be folded in time: an old transaction is open in this database")


async def _flushed(step: Step, lsn: str) -> None:
    standbys = 0
    async for _ in looks(step.order.patience_ms):
        row = await step.store.row(step.connection, "link_flushed", lsn=lsn, link=step.order.link)
        flushed, standbys = row or (True, 0)
        if flushed:
            return
    raise Conflict(f"none of {standbys} standbys has flushed the sealed place of the log")


async def depart(step: Step) -> Answer:
    """The tenant lives elsewhere, under the epoch that its ownership row has."""
    order = step.order
    gone = await step.store.row(
        step.connection, "transfer_gone", tenant=step.tenant, move=step.move, epoch=order.new_epoch
    )
    if gone is None:
        raise Conflict("the tenant is not sealed under this move")
    facts: dict[str, object] = {"moved_at": datetime.now(UTC).isoformat()}
    await step.store.go(
        step.connection, step.tenant, step.move, step.side,
        froms=("SEALED", "BARRIER"), to="MOVED", peer_url=order.peer_url, facts=facts,
    )  # fmt: skip
    await step.store.do(
        step.connection, "transfer_source_epoch",
        tenant=step.tenant, move=step.move, side=step.side.name, epoch=order.new_epoch,
    )  # fmt: skip
    return {"epoch": order.new_epoch}


async def clean(step: Step) -> Answer:
    """Delete a part of the rows, once all that was counted here is shipped. Ask again until `done`."""
    row = await step.row()
    if row is None or row.state not in ("MOVED", "DONE"):
        raise Conflict("the tenant has not left this cell with this move")
    if row.state == "DONE":
        return {"done": True, "deleted": 0, "why": ""}
    store, connection = step.store, step.connection
    await store.unlink(connection, row.link)
    moved_at = datetime.fromisoformat(str(row.facts["moved_at"]))
    if await store.one(
        connection, "transfer_meters_left", tenant=step.tenant, since=moved_at + timedelta(seconds=1)
    ):
        return {"done": False, "deleted": 0, "why": "waits until what was counted here is sealed and shipped"}
    deleted, until = 0, time.monotonic() + CLEAN_SECONDS
    for table in COPIED:
        while n := await store.one(connection, "transfer_delete", table=table, tenant=step.tenant, page=PAGE):
            deleted += n
            if time.monotonic() > until:
                return {"done": False, "deleted": deleted, "why": f"deletes rows of {table}"}
            await asyncio.sleep(0)
    await store.do(connection, "transfer_forget_marks", tenant=step.tenant, move=step.move)
    await step.go(("MOVED",), "DONE")
    return {"done": True, "deleted": deleted, "why": ""}


async def abort(step: Step) -> Answer:
    """The tenant works on here; nothing of the move remains."""
    row = await step.row()
    if row is None or row.state == "UNDONE":
        return {"undone": True}
    if row.state in ("MOVED", "DONE"):
        raise Conflict("the tenant has left this cell: the move can only go on")
    values = {"tenant": step.tenant, "move": step.move, "epoch": step.order.new_epoch}
    await step.store.row(step.connection, "transfer_lift", **values)
    await unlinked(step, row.link)
    await step.go(("PREPARED", "PUBLISHED", "BARRIER", "SEALED"), "UNDONE")
    return {"undone": True}


async def unlinked(step: Step, link: str) -> None:
    """Drop the link; its reader may need a moment to go. `Conflict` if it does not."""
    async for _ in looks(5_000):
        try:
            await step.store.unlink(step.connection, link)
        except psycopg.errors.ObjectInUse:
            continue
        if await step.store.slot_is_gone(step.connection, link):
            return
    raise Conflict("the other cell still reads the tenant's changes")


async def progress(step: Step) -> Answer:
    """How far the other side has read, and how the tenant is held."""
    row = await step.row()
    if row is None:
        return {"state": None}
    await step.store.touch(step.connection, step.tenant, step.move, step.side)
    slot = await step.store.row(step.connection, "link_slot_state", link=row.link)
    active, wal, held, lag = slot or (False, None, None, None)
    return {
        "state": row.state,
        "attempt": row.attempt,
        "cell_epoch": row.cell_epoch,
        "taken_over": row.taken_over,
        "tenant_state": row.tenant_state,
        "ownership_epoch": row.ownership_epoch,
        "sealed_lsn": row.sealed_lsn,
        "reading": active,
        "log": wal,  # lost: the copy must begin again
        "log_bytes": held,
        "lag_bytes": lag,
    }
