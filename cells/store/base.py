"""What every part of the store stands on: the database, the journal, the fence of a tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from cells.ports import Completion, Fence, NotOwner, TenantConfig
from cells.pulling import QueueId
from cells.store.allowance import PendingTimers
from cells.store.database import Connection, Database, fetch_one
from cells.store.definitions import DefinitionCache
from cells.store.fronts import Front, HeldFronts, ReadyFronts
from cells.store.journal import Entry, Journal

#: What waits for engines is written by short transactions; a longer one's is found within a second.
TO_STEP_MARGIN = timedelta(seconds=2)


class StoreBase:
    """State shared by the parts of `PostgresStore`."""

    def __init__(self, database: Database, *, cell_name: str) -> None:
        self._database = database
        self._cell_name = cell_name
        self._journal = Journal()
        self._definitions = DefinitionCache()
        self._pending = PendingTimers()
        self._unreadable: dict[QueueId, int] = {}  # tasks at the head of queues that this code cannot read
        self._oldest_timer = Front(seconds=60.0, ahead=True)
        self._oldest_lease = Front(seconds=60.0, ahead=True)  # of workers
        self._ready = ReadyFronts()
        self._to_step = Front(seconds=1.0, ahead=True, margin=TO_STEP_MARGIN)  # what waits for engines
        self._held = HeldFronts()
        self._host_name = cell_name  # of the incarnation registered through this store
        #: Called after a commit that left something to record for a workflow.
        self.workflows_due: Callable[[], None] = _nobody
        #: Told of completions that changed nothing: their tenants may have moved away.
        self.completions_refused: Callable[[Sequence[Completion]], None] = _nowhere

    @asynccontextmanager
    async def _write(self, fence: Fence, host_id: int) -> AsyncIterator[tuple[Connection, Entry]]:
        """A transaction that writes for one tenant: fenced first, journalled last."""
        async with self._database.transaction() as connection:
            await fenced(connection, fence)
            entry = Entry()
            yield connection, entry
            await self._journal.append(connection, host_id, entry)


async def fenced(connection: Connection, fence: Fence) -> TenantConfig:
    """The tenant's configuration, or `NotOwner` where the fence does not hold."""
    row = await fetch_one(connection, "tenant_fence", {"tenant": fence.tenant_id, "epoch": fence.epoch})
    if row is None:
        raise NotOwner(f"tenant {fence.tenant_id} is not active here under epoch {fence.epoch}")
    return msgspec.json.decode(row[0], type=TenantConfig)


def _nowhere(_: Sequence[Completion]) -> None:
    """Their runs were claimed anew or have ended."""


def _nobody() -> None:
    """Engines look by themselves."""
