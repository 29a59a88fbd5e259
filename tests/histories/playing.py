"""Plays histories, one after the other on the same clusters, and says what was wrong with each."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType

import structlog

from cells.ports import Fence, NewJob, TenantConfig, TenantPlacement
from tests.component.cells.store.world import every, new_job, secret, target
from tests.histories.cell import PASSING, Process, Record
from tests.histories.judging import faults_of, unaccounted
from tests.histories.moving import Move
from tests.histories.script import Fault, Script
from tests.histories.witness import Witness
from tests.histories.world import World
from tests.waiting import eventually

log = structlog.get_logger(__name__)

#: How long anything may take when nothing is wrong any more (seconds).
_PATIENCE = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """What came of a history."""

    seed: int
    seconds: float
    faults: list[str]
    did: Counter[str]


@dataclass
class Stage:
    """The cells' processes on a world."""

    world: World
    x: list[Process] = field(default_factory=list)

    async def __aenter__(self) -> Stage:
        world = self.world
        self._stop = asyncio.Event()
        self.x = [
            Process(
                "x", site.url, world.valkey_url, leased=True, owns=lambda site=site: site.keeper.status.owns
            )
            for site in world.sites.values()
        ]
        self.y = Process("y", world.y_url, world.valkey_url, leased=False, owns=lambda: True)
        self._tasks = [asyncio.create_task(process.run(self._stop)) for process in (*self.x, self.y)]
        try:
            await self._set_up()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _set_up(self) -> None:
        """The founder makes the cell's row, then it is owned, then the others join."""
        world = self.world
        founder = self.x[0]
        await founder.found()
        await eventually(lambda: world.owner() is not None, timeout=_PATIENCE)
        await eventually(lambda: self.y.store is not None and self._acting().store is not None, timeout=60)
        for process in (self._acting(), self.y):
            if process.store is not None:
                await process.store.ensure_partitions(days_ahead=2)
        for region in "bc":
            world.sites[region].start()
        await eventually(world.well, timeout=_PATIENCE)

    def _acting(self) -> Process:
        """The process that may act for x; the first one where there is none."""
        return next((process for process in self.x if process.store is not None), self.x[0])

    async def play(self, script: Script) -> Played:
        """One history, from all well to all well."""
        began = time.monotonic()
        world = self.world
        for region, rate in script.rates.items():
            world.clocks[region].goes(rate)
        record = Record()
        for process in (*self.x, self.y):
            process.record, process.hand_on = record, None
        ticking = {cell: await self._tenant(cell, record) for cell in ("x", "y")}
        since = datetime.now(UTC)
        processes = {"x": self.x, "y": [self.y]}
        moves = []
        urls = {region: site.url for region, site in world.sites.items()}
        with Witness(urls, world.y_url) as witness:
            acts = [self._fault(fault) for fault in script.faults]
            for cell, at in script.moves.items():
                if at is not None:
                    there = "y" if cell == "x" else "x"
                    move = Move(ticking[cell][0], cell, there, world.store, processes)
                    moves.append(move)
                    acts.append(self._move(move, at))
            await asyncio.gather(*acts)
            await asyncio.to_thread(world.heal)
            await eventually(world.well, timeout=_PATIENCE, interval=0.1)
            record.quiet = True
            await eventually(lambda: self._accounted(record), timeout=_PATIENCE, interval=0.1)
        faults = [*witness.violations]
        homes = await self._homes(record)
        faults += await asyncio.to_thread(faults_of, record, dict(ticking.values()), homes, since)
        did = Counter[str](fault.what for fault in script.faults)
        did.update(move.outcome for move in moves)
        for move in moves:
            log.info("move", to=move.destination, outcome=move.outcome, why=move.why)
        acked = Counter(ack.what for ack in record.acks)
        did.update(
            acknowledged_jobs=acked["create"],
            acknowledged_ends=acked["complete"],
            called=len(record.calls),
            unconfirmed=record.unconfirmed,
            looks=witness.looks,
        )
        record.tenants.clear()
        return Played(seed=script.seed, seconds=time.monotonic() - began, faults=faults, did=did)

    async def _fault(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        await asyncio.to_thread(self.world.begin, fault)
        await asyncio.sleep(fault.lasts)
        await asyncio.to_thread(self.world.end, fault)

    async def _move(self, move: Move, at: float) -> None:
        await asyncio.sleep(at)
        await move.drive(until=time.monotonic() + 15)

    async def _tenant(self, cell: str, record: Record) -> tuple[uuid.UUID, NewJob]:
        """A tenant of a cell with a job for each second, confirmed."""
        tenant = uuid.uuid4()
        store = self.world.store
        owned = await asyncio.to_thread(store.claim_tenant, tenant, cell=cell, expected=None)
        at = datetime.now(UTC).replace(microsecond=0)
        ticks = new_job(at, every(1, at, region_policy="STRICT", misfire_grace_seconds=1))

        async def made() -> bool:
            process = self._acting() if cell == "x" else self.y
            here = process.store  # it may begin anew at any moment
            if here is None:
                return False
            row = await asyncio.to_thread(store.cell, cell)
            epoch = max(owned.epoch, 0 if row is None else row.epoch)
            fence = Fence(tenant_id=tenant, epoch=epoch)
            try:
                await here.put_tenant(
                    TenantPlacement(
                        tenant_id=tenant,
                        state="ACTIVE",
                        ownership_epoch=epoch,
                        config_version=1,
                        config=TenantConfig(),
                    )
                )
                known = await here.get_target(tenant, target(tenant).target_id)
                if known is None:
                    await here.create_target(fence, target(tenant), [secret()], host_id=process.host_id)
                (created,) = await here.create_jobs([fence], [ticks], host_id=process.host_id)
                if isinstance(created, Exception):
                    raise created
                await here.confirm()
            except PASSING:
                return False
            return True

        await eventually(made, timeout=_PATIENCE, interval=0.1)
        record.tenants.append(tenant)
        return tenant, ticks

    async def _homes(self, record: Record) -> dict[uuid.UUID, str]:
        """The database in which each tenant lives."""
        homes = {}
        owner = self.world.owner()
        for tenant in record.tenants:
            owned = await asyncio.to_thread(self.world.store.tenant, tenant)
            if owned is None or owner is None:
                raise AssertionError("a tenant lives nowhere")
            homes[tenant] = owner.url if owned.cell == "x" else self.world.y_url
        return homes

    async def _accounted(self, record: Record) -> bool:
        """Everything that was acknowledged has had its run, and nothing is due."""
        if self.world.owner() is None:
            return False
        homes = await self._homes(record)
        try:
            return not await asyncio.to_thread(unaccounted, record, homes)
        except PASSING:
            return False
