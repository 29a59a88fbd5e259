"""The side that a tenant comes to."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import msgspec
from psycopg.conninfo import make_conninfo

from cells.domain.run import run_generation
from cells.ports import Conflict, Member, TenantConfig
from cells.store.database import Row
from cells.transfer.comparing import compare_settled, compare_tail
from cells.transfer.steps import Step, looks, password
from cells.transfer.tables import COPIED
from cells.transfer_ports import Answer

PAGE = 5000
#: Sessions at each side that compare tables side by side after the seal.
_SIDE_BY_SIDE = 2
#: Timers this far ahead are in the queue before the tenant is said to be at home; how far the others reach.
AT_ONCE, HORIZON = timedelta(seconds=15), timedelta(minutes=130)
_SPAN = timedelta(minutes=2)
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


async def prepare(step: Step) -> Answer:
    """Know the tenant as one that lives elsewhere, hold none of its rows, have its days of runs."""
    store, connection, order = step.store, step.connection, step.order
    row = await step.row()
    epoch, _, schema, _, _ = await store.row(connection, "link_schema") or (0, "", "", [], "")
    if schema != order.schema:
        raise Conflict("the two cells do not run the same version: their tables are not alike")
    if row is not None and row.attempt == order.attempt and not row.taken_over and row.state == "SUBSCRIBED":
        return {"cell_epoch": epoch}
    awaited = await store.row(
        connection, "transfer_awaited",
        tenant=step.tenant, move=step.move, epoch=order.epoch, version=order.config_version, told=order.state,
        config=msgspec.json.encode(msgspec.convert(order.config, TenantConfig)).decode(),
    )  # fmt: skip
    if awaited is None:
        raise Conflict("the tenant is at home in this cell, or another move brings it here")
    if row is not None:
        await store.rows(connection, "link_unsubscribe", link=row.link)
    await store.rows(connection, "link_unsubscribe", link=order.link)
    begun = await store.open(
        connection, step.tenant, step.move, step.side,
        attempt=order.attempt, peer=order.peer, epoch=order.epoch, link=order.link, conninfo=order.conninfo,
    )  # fmt: skip
    if not begun:
        raise Conflict("another attempt of this move is under way here")
    await _emptied(step)
    counts = await store.rows(connection, "transfer_counts", tenant=step.tenant, tables=list(COPIED))
    if left := {table: n for table, n in counts if n}:
        raise Conflict(f"this cell still has rows of the tenant: {left}")
    await store.rows(connection, "link_days", days=list(order.days))
    return {"cell_epoch": epoch}


async def _emptied(step: Step) -> int:
    deleted = 0
    for table in COPIED:
        while n := await step.store.one(
            step.connection, "transfer_delete", table=table, tenant=step.tenant, page=PAGE
        ):
            deleted += n
    await step.store.do(step.connection, "transfer_forget_marks", tenant=step.tenant, move=step.move)
    return deleted


def _source(conninfo: str, link: str, key: bytes) -> str:
    return make_conninfo(conninfo, user=link, password=password(key, link), connect_timeout=5)


async def subscribe(step: Step, key: bytes) -> Answer:
    """Copy all rows, then follow."""
    row = await step.current()
    if row.state in ("PREPARED", "SUBSCRIBED"):
        await step.store.rows(
            step.connection,
            "link_subscribe",
            link=row.link,
            conninfo=_source(row.conninfo, row.link, key),
        )
        await step.go(("PREPARED", "SUBSCRIBED"), "SUBSCRIBED")
    return {}


async def progress(step: Step) -> Answer:
    """How far copying has come."""
    row = await step.row()
    if row is None:
        return {"state": None}
    await step.store.touch(step.connection, step.tenant, step.move, step.side)
    tables, ready, rows, size, enabled, copied = await step.store.row(
        step.connection, "link_copying", link=row.link
    ) or (0, 0, 0, 0, False, None)
    return {
        "state": row.state,
        "attempt": row.attempt,
        "cell_epoch": row.cell_epoch,
        "taken_over": row.taken_over,
        "tenant_state": row.tenant_state,
        "ownership_epoch": row.ownership_epoch,
        "tables": tables,
        "tables_ready": ready,
        "rows_copying": rows,
        "bytes_copying": size,
        "following": enabled,  # false: copying was given up, see the cell's PostgreSQL log
        "copied": copied or [],
        "verified": row.facts.get("verified"),
        "tail": row.facts.get("tail"),
    }


async def verify(step: Step, key: bytes) -> Answer:
    """Compare everything that is settled, and have the planner know the rows."""
    row = await step.current()
    if row.state != "SUBSCRIBED":
        raise Conflict("nothing is copied yet")
    await step.store.rows(step.connection, "link_analyze", tables=list(COPIED))
    async with step.store.session(at=_source(row.conninfo, row.link, key)) as there:
        found = await compare_settled(
            step.store, step.tenant, step.connection, there, patience=step.order.patience_ms / 1000
        )
    facts: dict[str, object] = {
        "verified": {"rows": found.rows, "one_by_one": found.one_by_one},
        "since": found.since,
    }
    await step.go(("SUBSCRIBED",), "SUBSCRIBED", facts=facts)
    return {"rows": found.rows, "one_by_one": found.one_by_one}


async def tail(step: Step, key: bytes) -> Answer:
    """The sealed place of the log is here, and what changed since `verify` is as it is there. From now on
    this side may take the tenant."""
    row = await step.current()
    if row.state == "READY":
        return dict(row.facts.get("tail", {}))
    store, order = step.store, step.order
    since = row.facts.get("since")
    if row.state != "SUBSCRIBED" or not isinstance(since, str):
        raise Conflict("what was copied has not been compared")
    async for _ in looks(order.patience_ms):
        if await store.one(
            step.connection, "transfer_mark_there", tenant=step.tenant, move=step.move, lsn=order.lsn
        ):
            break
    else:
        raise Conflict("the sealed place of the log has not come in time")
    source = _source(row.conninfo, row.link, key)
    async with AsyncExitStack() as stack:
        heres = [await stack.enter_async_context(store.session()) for _ in range(_SIDE_BY_SIDE)]
        theres = [await stack.enter_async_context(store.session(at=source)) for _ in range(_SIDE_BY_SIDE)]
        try:
            found = await compare_tail(store, step.tenant, tuple(heres), tuple(theres), since=since)
        except ExceptionGroup as faults:
            raise faults.exceptions[0] from None
    _, _, _, _, lsn = await store.row(step.connection, "link_schema") or ("", "", "", "", "0/0")
    async for _ in looks(order.patience_ms):
        flushed, _ = await store.row(step.connection, "link_flushed", lsn=lsn, link=row.link) or (True, 0)
        if flushed:
            break
    else:
        raise Conflict("no standby of this cell has flushed what was copied")
    told = {"rows": found.rows, "changed": found.one_by_one, "sealed_lsn": order.lsn, "applied_lsn": lsn}
    await step.go(("SUBSCRIBED",), "READY", facts={"tail": told})
    return told


async def activate(step: Step) -> Answer:
    """The tenant is at home here under its new epoch, in one transaction with what of its rows meant the
    other cell."""
    row = await step.row()
    store, connection, order = step.store, step.connection, step.order
    if row is None or row.state not in ("READY", "ACTIVE", "DONE"):
        raise Conflict("this cell does not have all of the tenant")
    if row.state == "READY":
        async with connection.transaction():
            await store.do(connection, "transfer_forget_hosts", tenant=step.tenant)
            await store.rows(connection, "transfer_raise_identities", tables=list(COPIED), tenant=step.tenant)
            await store.do(connection, "link_touch_days")
            at_home = await store.row(
                connection, "transfer_activate", tenant=step.tenant, move=step.move, epoch=order.new_epoch
            )
            if at_home is None:
                raise Conflict(f"the tenant cannot be taken under epoch {order.new_epoch}")
            await store.do(
                connection, "transfer_source_epoch",
                tenant=step.tenant, move=step.move, side=step.side.name, epoch=order.new_epoch,
            )  # fmt: skip
            await step.go(("READY",), "ACTIVE")
    elif row.new_epoch != order.new_epoch:
        raise Conflict("the tenant was taken under another epoch", epoch=row.new_epoch)
    return {"epoch": order.new_epoch}


async def release(step: Step) -> Answer:
    """Follow no more; what remains of the link is the source's."""
    row = await step.row()
    if row is None or row.state not in ("ACTIVE", "DONE"):
        raise Conflict("the tenant is not at home here by this move")
    await step.store.rows(step.connection, "link_unsubscribe", link=row.link)
    await step.store.do(step.connection, "transfer_forget_marks", tenant=step.tenant, move=step.move)
    await step.go(("ACTIVE", "DONE"), "DONE")
    return {}


async def abort(step: Step) -> Answer:
    """Nothing of the tenant remains here."""
    row = await step.row()
    if row is None or row.state == "UNDONE":
        return {"undone": True}
    if row.state in ("ACTIVE", "DONE"):
        raise Conflict("the tenant is at home here: the move can only go on")
    await step.store.rows(step.connection, "link_unsubscribe", link=row.link)
    deleted = await _emptied(step)
    await step.go(("PREPARED", "SUBSCRIBED", "READY"), "UNDONE")
    return {"undone": True, "deleted": deleted}


# --- timers ----------------------------------------------------------------------------------
async def timers(step: Step, since: datetime | None, until: datetime) -> list[Member]:
    """What comes due for the tenant within a span; without a beginning all that is overdue, too."""
    rows = await step.store.rows(
        step.connection, "transfer_due", tenant=step.tenant, since=since or _BEGINNING, until=until
    )
    return [_member(step, row) for row in rows]


def spans(now: datetime) -> list[tuple[datetime, datetime]]:
    """The coming hours in narrow spans, the nearest first."""
    found = []
    at = now
    while at < now + HORIZON:
        found.append((at, at + _SPAN))
        at += _SPAN
    return found


def _member(step: Step, row: Row) -> Member:
    parent, scheduled_s, ordinal, number, attempt, is_run, priority, due, shard = row
    return Member(
        tenant_id=step.tenant,
        parent_id=parent,
        scheduled_for=scheduled_s,
        ordinal=ordinal,
        is_run=is_run,
        generation=run_generation(number, attempt) if is_run else number,
        priority=priority,
        due_ms=-(-due // 1000),
        shard=shard,
    )
