"""One cell's part in erasing a tenant: asked again and again until it says that it is done.

Each call does a few seconds of work behind what was done before; a crash anywhere costs that much.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec

from cells.config import Settings
from cells.erasure.lake import HistoryEraser
from cells.lake.files import LakeFiles
from cells.lake.writer import Place
from cells.observability.logs import logger
from cells.ports import Conflict
from cells.store.database import Connection
from cells.store.transfer import TransferStore, application_of
from cells.stores.elsewhere import lake_name

log = logger(__name__)

#: Rows deleted in one transaction, how long one call works, and waits for what is open (seconds).
PAGE, WORK_SECONDS, PATIENCE_SECONDS = 5000, 2.0, 2.0
_LOOK_SECONDS = 0.01
#: Before every row of the journal: its time, host and sequence.
_BEGINNING = (datetime(1970, 1, 1, tzinfo=UTC), 0, 0)


class Forgetting(Protocol):
    """The cell's queue, as far as it is needed here."""

    async def forget_tenant(self, tenant_id: uuid.UUID) -> int:
        """Removes all that the queue holds of a tenant; how many keys, members and fields."""
        ...


class _Waits(Exception):
    """It cannot go on yet; the sentence says what for."""


class ErasureService:
    """Implements `erasure_ports.Erasures`. `history` is None where nothing leaves the store."""

    def __init__(
        self,
        store: TransferStore,
        queue: Forgetting,
        history: HistoryEraser | None,
        *,
        page: int = PAGE,
    ) -> None:
        self.store, self.queue, self.history, self.page = store, queue, history, page

    async def erase(self, tenant_id: uuid.UUID, erasure_id: uuid.UUID) -> Mapping[str, object]:
        """See `Erasures.erase`."""
        async with self.store.session() as connection:
            known = await self.store.row(connection, "erase_halt", tenant=tenant_id, erasure=erasure_id)
            if known is None:
                raise Conflict("this cell's lease is over")
            quiet_at, lake_after, kept, erased_at = known
            counts = Counter({str(what): int(n) for what, n in kept.items()})
            work = _Work(self, connection, tenant_id, counts, lake_after)
            why = ""
            try:
                await work.all_of_it(quiet=quiet_at is not None)
            except _Waits as waits:
                why = str(waits)
            finally:
                await self.store.do(
                    connection, "erase_counted",
                    tenant=tenant_id, counts=msgspec.json.encode(counts).decode(), lake_after=work.lake_after,
                )  # fmt: skip
            if not why and erased_at is None:
                erased_at = await self.store.one(connection, "erase_done", tenant=tenant_id)
                log.info("a tenant is erased", erasure=str(erasure_id), removed=counts.total())
        return {
            "done": not why,
            "why": why,
            "removed": {what: n for what, n in sorted(counts.items()) if n},
            "erased_at": None if why else erased_at.isoformat(),
        }

    async def erased(self) -> list[tuple[uuid.UUID, bool]]:
        """Every tenant that was erased here, and whether that is over."""
        async with self.store.session() as connection:
            rows = await self.store.rows(connection, "cell_erased_tenants")
            return [(tenant, at is not None) for tenant, _, at in rows]


def erasures_of(
    settings: Settings, store: TransferStore, queue: Forgetting, files: LakeFiles | None
) -> ErasureService:
    """What a process of a cell has to do with erasures."""
    place = Place(region=settings.region, cell=lake_name(settings))
    history = None if files is None else HistoryEraser(store, files, place)
    return ErasureService(store, queue, history)


class _Work:
    """What one call does."""

    def __init__(
        self,
        service: ErasureService,
        connection: Connection,
        tenant: uuid.UUID,
        counts: Counter[str],
        lake_after: str,
    ) -> None:
        self._service, self._store, self._connection = service, service.store, connection
        self._tenant, self._counts, self.lake_after = tenant, counts, lake_after
        self._until = time.monotonic() + WORK_SECONDS

    async def all_of_it(self, *, quiet: bool) -> None:
        """The steps in their order; `_Waits` where the time of this call is over, or another's is not."""
        if not quiet:
            await self._quieted()
        await self._metered()
        await self._links()
        # The journal before what is added up from it.
        await self._journal()
        for (table,) in await self._store.rows(self._connection, "cell_erasure_tables"):
            await self._paged(table, "erase_rows", table=table, tenant=self._tenant)
        await self._store.do(self._connection, "erase_lengthened", tenant=self._tenant)
        await self._lake()
        self._counts["valkey"] += await self._service.queue.forget_tenant(self._tenant)
        if left := await self._store.rows(self._connection, "erase_left", tenant=self._tenant):
            # A role wrote down what it had read before: the next call takes it.
            raise _Waits(f"rows came back: {', '.join(f'{n} in {table}' for table, n in left)}")

    async def _quieted(self) -> None:
        """No transaction is open any more that may have seen the tenant at work."""
        application = application_of(self._store.cell_name)
        since = await self._store.one(self._connection, "link_clock")
        until = time.monotonic() + PATIENCE_SECONDS
        while still := await self._store.one(
            self._connection, "link_open_since", application=application, at=since
        ):
            if time.monotonic() > until:
                raise _Waits(f"waits for {still} transactions that began before")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _metered(self) -> None:
        """What was done for the tenant is billed: it is counted, sealed and acknowledged first."""
        quiet_at = await self._store.one(self._connection, "erase_quiet", tenant=self._tenant)
        since = quiet_at + timedelta(seconds=1)
        if await self._store.one(self._connection, "transfer_meters_left", tenant=self._tenant, since=since):
            raise _Waits("waits until what was counted here is sealed and shipped")

    async def _links(self) -> None:
        for (link,) in await self._store.rows(self._connection, "erase_links", tenant=self._tenant):
            await self._store.rows(self._connection, "link_unsubscribe", link=link)
            await self._store.unlink(self._connection, link)

    async def _journal(self) -> None:
        """Page behind page, and once more from the beginning: until a whole walk finds nothing."""
        after = _BEGINNING
        while True:
            at, host, seq = after
            row = await self._store.row(
                self._connection, "erase_journal",
                tenant_hex=self._tenant.hex, page=self._service.page, at=at, host=host, seq=seq,
            )  # fmt: skip
            if row is None and after == _BEGINNING:
                return
            after = _BEGINNING
            if row is not None:
                self._removed("journal", row[0])
                after = (row[1], row[2], row[3])
            await asyncio.sleep(0)

    async def _paged(self, what: str, statement: str, **values: object) -> None:
        while n := await self._store.one(self._connection, statement, page=self._service.page, **values):
            self._removed(what, n)
            await asyncio.sleep(0)

    def _removed(self, what: str, n: int) -> None:
        self._counts[what] += n
        if time.monotonic() > self._until:
            raise _Waits(f"removes what is in {what}")

    async def _lake(self) -> None:
        history = self._service.history
        if history is None:
            return
        waits, self.lake_after = await history.erase(
            self._connection, self._tenant, after=self.lake_after, until=self._until, counts=self._counts
        )
        if waits:
            raise _Waits(waits)
