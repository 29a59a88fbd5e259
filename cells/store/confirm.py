"""Waiting until another region has flushed what was committed here (STRICT).

The log has one order: a commit that a standby has confirmed confirms every commit before it. So nobody's own
transaction waits. Whoever needs to know writes a mark afterwards and waits for that, and all who ask
meanwhile share the next one.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

import psycopg
from psycopg.errors import Diagnostic

from cells.observability.logs import logger
from cells.ports import LeaseLost
from cells.records import StrictShut, Unconfirmed
from cells.store.base import StoreBase
from cells.store.database import Connection, Database, fetch_one, fetch_row, run

log = logger(__name__)

#: How long a standby may take (seconds).
CONFIRM_SECONDS = 3.0
_CANCEL_SECONDS = 5.0
#: What PostgreSQL says of a commit whose wait was ended: it is there, and nobody else may have it.
_NOT_WAITED_FOR = "canceling wait for synchronous replication"


class Confirmation(StoreBase):
    """`confirm`, and what of it concerns."""

    _leased: bool  # whether the cell has sites in several regions

    def __init__(self, database: Database, *, cell_name: str) -> None:
        super().__init__(database, cell_name=cell_name)
        self._confirming: asyncio.Task[Sequence[str]] | None = None
        self._next: asyncio.Task[Sequence[str]] | None = None

    async def confirm(self, *, strict: bool = True) -> None:
        """See `ports.Store.confirm`."""
        if not self._leased:
            return
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._confirming))
        unread = await asyncio.shield(self._next)
        if strict and unread:
            raise StrictShut(unread)

    async def strict_parent(self, tenant_id: uuid.UUID, parent_id: uuid.UUID) -> bool:
        """See `confirming.ConfirmStore.strict_parent`."""
        return await self._strict("strict_parent", {"tenant": tenant_id, "parent": parent_id})

    async def strict_selection(self, tenant_id: uuid.UUID, selection_id: uuid.UUID) -> bool:
        """See `confirming.ConfirmStore.strict_selection`."""
        return await self._strict("strict_selection", {"tenant": tenant_id, "selection": selection_id})

    async def _strict(self, look: str, parameters: dict[str, object]) -> bool:
        if not self._leased:
            return False
        async with self._database.transaction() as connection:
            (found,) = await fetch_row(connection, look, parameters)
            return bool(found)

    async def _after(self, running: asyncio.Task[Sequence[str]] | None) -> Sequence[str]:
        """A mark that is written after this call of everybody who waits for it; the sites that are unread."""
        if running is not None:
            await asyncio.wait({running})
        self._confirming, self._next = self._next, None
        async with self._database.transaction() as connection:
            return await self._mark(connection)

    async def _mark(self, connection: Connection) -> Sequence[str]:
        said: list[str] = []

        def hear(notice: Diagnostic) -> None:
            said.append(notice.message_primary or "")

        connection.add_notice_handler(hear)
        try:
            await run(connection, "cell_confirm_waits")
            marked = await fetch_one(connection, "cell_confirm_mark")
            if marked is None:
                raise LeaseLost("the lease of this cell has ended")
            if not marked[0]:
                raise Unconfirmed("no other region may confirm anything yet")
            # Neither a timeout of statements nor a client that leaves ends this wait; a cancel does.
            commit = asyncio.ensure_future(connection.commit())
            done, _ = await asyncio.wait({commit}, timeout=CONFIRM_SECONDS)
            if not done:
                await _end_wait(connection, commit)
            await commit
        finally:
            connection.remove_notice_handler(hear)
        if any(text.startswith(_NOT_WAITED_FOR) for text in said):
            raise Unconfirmed(f"no other region has confirmed it within {CONFIRM_SECONDS:.0f} s")
        return list(marked[2])


async def _end_wait(connection: Connection, commit: asyncio.Future[None]) -> None:
    """Have a commit return that nobody confirms. Where it cannot be told to, its connection is given up:
    whoever asks next must not wait behind it."""
    try:
        await connection.cancel_safe(timeout=_CANCEL_SECONDS)
    except (psycopg.Error, OSError, TimeoutError) as fault:
        log.warning("the wait for another region cannot be cancelled", fault=str(fault)[:200])
    done, _ = await asyncio.wait({commit}, timeout=_CANCEL_SECONDS)
    if not done:
        commit.cancel()
        await asyncio.gather(commit, return_exceptions=True)
        await connection.close()
        raise Unconfirmed(f"no other region has confirmed it within {CONFIRM_SECONDS:.0f} s")
