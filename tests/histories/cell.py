"""A process of a cell, as far as histories need one: it makes STRICT jobs, runs what is due, and remembers
what it acknowledged. Nothing is acknowledged, and nothing called, before it is confirmed."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import psycopg

from cells.clock import SystemClock
from cells.domain.ids import RunKey
from cells.domain.run import RunState
from cells.ports import Claim, Completion, Conflict, Created, Fence, Retryable, Terminal
from cells.store.postgres import PostgresStore
from cells.store.transfer import TransferStore
from cells.timers.queue import ValkeyQueue
from cells.transfer.service import TransferService
from tests.component.cells.store.world import TARGET, completion, new_job, now, once, seconds_ago

KEY = secrets.token_bytes(32)
#: What may go wrong with a cell that is being taken apart.
PASSING = (Retryable, Terminal, Conflict, psycopg.Error, OSError, TimeoutError)
_MOST_JOBS = 40  # of a tenant in one history
_SHARDS = range(256)
_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ack:
    """What a client was told is done: when that began and ended, where, and under which ownership."""

    what: str  # create, complete
    tenant: uuid.UUID
    job: uuid.UUID
    key: RunKey | None
    claim_epoch: int
    cell: str
    epoch: int
    began: float
    ended: float


@dataclass
class Record:
    """What everybody outside has seen of one history."""

    tenants: list[uuid.UUID] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    calls: list[tuple[RunKey, int, str]] = field(default_factory=list)
    unconfirmed: int = 0
    made: dict[uuid.UUID, int] = field(default_factory=dict)
    quiet: bool = False  # no new jobs: what there is comes to an end


class Process:
    """Works in one database while it is the cell's, and begins anew whenever that changes."""

    def __init__(
        self, cell: str, url: str, valkey_url: str, *, leased: bool, owns: Callable[[], bool]
    ) -> None:
        self.cell, self.url = cell, url
        self.service: TransferService | None = None
        self.store: PostgresStore | None = None
        self.host_id = 0
        self.record = Record()
        #: Ends that the store refuses, as their tenant has left: for the other cell.
        self.hand_on: Callable[[Sequence[Completion]], Awaitable[None]] | None = None
        self._valkey_url = valkey_url
        self._leased = leased
        self._owns = owns
        self._handing: set[asyncio.Task[None]] = set()

    async def found(self) -> None:
        """Make the row of the cell, so that it can be owned."""
        async with PostgresStore(self.url, cell_name=self.cell, pool_size=2, leased=self._leased):
            return

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop."""
        while not stop.is_set():
            if self._owns():
                try:
                    await self._live(stop)
                except PASSING:
                    pass  # of a cell that is being taken over: looked at anew
                finally:
                    self.service = self.store = None
            await asyncio.sleep(0.05)

    async def _live(self, stop: asyncio.Event) -> None:
        queue = ValkeyQueue(self._valkey_url, cell=f"{self.cell}-{next(_numbers)}", clock=SystemClock())
        async with PostgresStore(self.url, cell_name=self.cell, pool_size=4, leased=self._leased) as store:
            await queue.open()
            try:
                name = f"{self.cell}-{next(_numbers)}"
                host = await store.register_host(name=name, roles=["api", "executor"], lease_ms=60_000)
                self.host_id = host.host_id
                store.completions_refused = self._refused
                transfers = TransferStore(self.url, cell_name=self.cell)
                self.service = TransferService(
                    store,
                    transfers,
                    queue,
                    SystemClock(),
                    installation_key=KEY,
                    host_id=lambda: self.host_id,
                )
                self.store = store
                while self._owns() and not stop.is_set():
                    if await store.renew_host(host_id=self.host_id, lease_ms=60_000) is None:
                        return
                    for tenant in self.record.tenants:
                        await self._work_for(store, tenant, name)
                    await store.reap(host_id=self.host_id, limit=100)
                    await asyncio.sleep(0.05)
            finally:
                await queue.close()

    async def _work_for(self, store: PostgresStore, tenant: uuid.UUID, name: str) -> None:
        began = time.monotonic()  # before it is asked whose the tenant is
        placed = await store.get_tenant(tenant)
        if placed is None or placed.state != "ACTIVE":
            return
        fence = Fence(tenant_id=tenant, epoch=placed.ownership_epoch)
        try:
            if not self.record.quiet and self.record.made.get(tenant, 0) < _MOST_JOBS:
                await self._make(store, fence, began)
            await self._run_due(store, fence, name, began)
        except Conflict:
            return  # the tenant is being moved
        except Retryable as fault:
            if type(fault).__name__ != "Unconfirmed":
                raise
            self.record.unconfirmed += 1

    async def _make(self, store: PostgresStore, fence: Fence, began: float) -> None:
        self.record.made[fence.tenant_id] = self.record.made.get(fence.tenant_id, 0) + 1
        at = seconds_ago(1)
        job = new_job(at, once(at, region_policy="STRICT"))
        (created,) = await store.create_jobs([fence], [job], host_id=self.host_id)
        if not isinstance(created, Created):
            return
        await store.confirm()
        self._ack("create", fence, job.job_id, None, 0, began)

    async def _run_due(self, store: PostgresStore, fence: Fence, name: str, began: float) -> None:
        members = [
            member
            async for page in store.due_members(shards=_SHARDS, since=None, until=now())
            for member in page
            if member.tenant_id == fence.tenant_id
        ]
        if not members:
            return
        claims = (await store.claim(members[:50], host_id=self.host_id, host_name=name)).claims
        if not claims:
            return
        try:
            await store.confirm()
        except Retryable:
            await store.release(claims, host_id=self.host_id)
            raise
        self.record.calls += [(claim.key, claim.epoch, self.cell) for claim in claims]
        ends = [completion(claim, RunState.SUCCEEDED) for claim in claims]
        applied = await store.complete(ends, host_id=self.host_id)
        await store.confirm()
        done = [claim for claim, took in zip(claims, applied.applied, strict=True) if took]
        self._completed(fence, done, began)

    def _completed(self, fence: Fence, done: Sequence[Claim], began: float) -> None:
        for claim in done:
            self._ack("complete", fence, claim.key.parent_id, claim.key, claim.epoch, began)

    def _ack(
        self, what: str, fence: Fence, job: uuid.UUID, key: RunKey | None, claim_epoch: int, began: float
    ) -> None:
        ack = Ack(
            what=what,
            tenant=fence.tenant_id,
            job=job,
            key=key,
            claim_epoch=claim_epoch,
            cell=self.cell,
            epoch=fence.epoch,
            began=began,
            ended=time.monotonic(),
        )
        self.record.acks.append(ack)

    def _refused(self, completions: Sequence[Completion]) -> None:
        if self.hand_on is not None:
            task = asyncio.create_task(self._handed_on(completions))
            self._handing.add(task)
            task.add_done_callback(self._handing.discard)

    async def _handed_on(self, completions: Sequence[Completion]) -> None:
        try:
            if self.hand_on is not None:
                await self.hand_on(completions)
        except PASSING:
            return  # their leases end


__all__ = ["PASSING", "TARGET", "Ack", "Process", "Record"]
