"""The store on PostgreSQL: `ports.Store`, one module per concern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from cells.domain.ids import MAIN_STORE
from cells.ports import Applied, Completion, Store, Terminal
from cells.store.backfills import Backfills
from cells.store.calendars import Calendars
from cells.store.callbacks import Callbacks
from cells.store.claim import Claims
from cells.store.concurrency import Concurrency
from cells.store.confirm import Confirmation
from cells.store.create import Creation
from cells.store.crowding import Crowding
from cells.store.database import Database, fetch_one, run
from cells.store.due import DueWork
from cells.store.engine import Engine
from cells.store.events import Events
from cells.store.gauges import Gauges
from cells.store.herd import Herds
from cells.store.hosts import Hosts
from cells.store.insight import Insight
from cells.store.job_changes import JobChanges
from cells.store.job_starts import JobWorkflows
from cells.store.job_usage import JobUsages
from cells.store.jobs import Jobs
from cells.store.lake import Lake
from cells.store.letters import Letters
from cells.store.limits import TargetLimits
from cells.store.local_stores import LocalStores
from cells.store.meters import Meters
from cells.store.open_workflows import WorkflowsUnderWay
from cells.store.operations import Operations
from cells.store.pull import Pulls
from cells.store.punctuality import Punctual
from cells.store.retiming import Retiming
from cells.store.returned import Returned
from cells.store.runs import Runs
from cells.store.selections import Selections
from cells.store.starting import Starting
from cells.store.stats import Stats
from cells.store.status import Status
from cells.store.targets import Targets
from cells.store.task_queues import TaskQueues
from cells.store.tenants import Tenants
from cells.store.transfer import application_of
from cells.store.triggers import Triggers
from cells.store.upkeep import Upkeep
from cells.store.use import Use
from cells.store.workflow_lake import WorkflowLake
from cells.store.workflow_words import WorkflowWords
from cells.store.workflows import Workflows


class PostgresStore(
    Tenants,
    Hosts,
    Confirmation,
    Creation,
    Workflows,
    Starting,
    WorkflowWords,
    Engine,
    JobWorkflows,
    Jobs,
    JobChanges,
    Triggers,
    DueWork,
    Claims,
    Pulls,
    TaskQueues,
    Concurrency,
    Callbacks,
    Runs,
    Targets,
    TargetLimits,
    Selections,
    Operations,
    Letters,
    Calendars,
    Backfills,
    Retiming,
    Stats,
    Herds,
    Events,
    Insight,
    Use,
    Crowding,
    Punctual,
    Meters,
    Gauges,
    JobUsages,
    Status,
    Upkeep,
    LocalStores,
    Lake,
    WorkflowLake,
    WorkflowsUnderWay,
    Returned,
):
    """One cell's truth. `open` before use, on a migrated database."""

    def __init__(
        self, url: str, *, cell_name: str, pool_size: int = 10, leased: bool = False, number: int = MAIN_STORE
    ) -> None:
        database = Database(url, pool_size=pool_size, application_name=application_of(cell_name))
        super().__init__(database, cell_name=cell_name)
        self._leased = leased
        self._number = number

    async def open(self) -> Self:
        """Connect, and see that this database belongs to this cell. `Terminal` if it does not."""
        await self._database.open()
        async with self._database.transaction() as connection:
            await run(
                connection,
                "cell_insert",
                {"name": self._cell_name, "leased": self._leased, "store": self._number},
            )
            row = await fetch_one(connection, "cell_name")
        if row is None or row[0] != self._cell_name:
            await self.close()
            raise Terminal(f"this database belongs to cell {None if row is None else row[0]}")
        if row[2] != self._number:
            await self.close()
            raise Terminal(f"this database is store {row[2]} of its cell, not {self._number}: see CELL_STORE")
        if row[1] != self._leased:
            await self.close()
            raise Terminal(
                "this database's cell is owned under a lease: CELL_OWNERSHIP=LEASED is missing"
                if row[1]
                else "this database's cell is owned for good: CELL_OWNERSHIP=LEASED is wrong"
            )
        return self

    async def complete(self, completions: Sequence[Completion], *, host_id: int) -> Applied:
        """See `ports.Store.complete`. What was refused is told to `completions_refused`."""
        done = await super().complete(completions, host_id=host_id)
        if not all(done.applied):
            pairs = zip(completions, done.applied, strict=True)
            self.completions_refused([completion for completion, took in pairs if not took])
        return done

    async def close(self) -> None:
        """Close every connection."""
        await self._database.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


def _conforms(store: PostgresStore) -> Store:
    """Checked by mypy: every method of the protocol is there, with its signature."""
    return store
