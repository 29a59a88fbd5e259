"""One process of a cell: `python -m cells.host [--roles …]`.

Builds the chosen roles (all by default), serves HTTP, and ends in order. It starts without its engines: until
PostgreSQL and Valkey answer it is alive and unready, and whenever they go away it waits.
On SIGTERM or SIGINT: no new connections, no new work, calls in flight finish within a bound,
the rest is released, completions are written, the host lease is given back.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta

import uvloop
from fastapi import FastAPI

from cells.api.app import create_app
from cells.clock import SystemClock
from cells.config import ROLES, Settings, SettingsError
from cells.erasure.service import erasures_of
from cells.execution.executor import Executor
from cells.execution.host_agent import HostAgent
from cells.execution.operations import Operations
from cells.execution.reaper import Reaper
from cells.execution.rescheduling import Rescheduling
from cells.execution.trial import Trial
from cells.lake.files import open_files
from cells.lake.reader import LakeReader
from cells.lake.service import Kept, LakeService
from cells.lake.writer import Place
from cells.metering.meter import MeterService
from cells.observability import logs
from cells.observability.metrics import Metrics
from cells.observability.traces import traces_from
from cells.ops import Readiness, in_front, ops_app
from cells.passive import first_of, until_primary
from cells.ports import Clock, Retryable, Terminal
from cells.returning.service import Returning
from cells.scratch import Scratch, forget_the_dead
from cells.secrets import SealedBox
from cells.serving import HttpServer
from cells.store.migrate import migrate
from cells.store.postgres import PostgresStore
from cells.stores.elsewhere import elsewhere_of, lake_name
from cells.supervision import Service, Supervisor
from cells.timers.dispatcher import Dispatcher
from cells.timers.loader import Loader
from cells.timers.metrics import TimerMetrics
from cells.timers.queue import ValkeyQueue
from cells.timers.sweeper import Sweeper
from cells.transfer.moving import Moving
from cells.upkeep import DAYS_AHEAD, Upkeep
from cells.vitals import VitalSigns
from cells.workflows.bell import Bell
from cells.workflows.engine import WorkflowEngine

log = logs.logger(__name__)

#: Thresholds of the cyclic collector. A run's objects die by reference counting; with Python's defaults
#: the collector walks what is alive hundreds of times a second, a third of all CPU time at full load.
GC_THRESHOLDS = (50_000, 20, 100)
#: Pauses between attempts to reach the engines at the start (seconds).
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
#: What the end may take beside the drain of calls (seconds).
_CLOSING_SECONDS = 15.0


class Process:
    """Everything one process is made of. `run` is its life."""

    def __init__(self, settings: Settings, clock: Clock):
        self.settings = settings
        self.metrics = Metrics()
        self.traces = traces_from(os.environ, service="clockhouse-cell", **_named(settings))
        self.clock = clock
        self.secrets = SealedBox(settings.installation_keys)
        self.store = PostgresStore(
            settings.database_url,
            cell_name=settings.cell_name,
            pool_size=settings.pool_size,
            leased=settings.leased,
            number=settings.stores.own,
        )
        self.queue = ValkeyQueue(settings.valkey_url, cell=settings.cell_name, clock=self.clock)
        self.bell = Bell(settings.valkey_url, cell=settings.cell_name)
        self.store.workflows_due = self.bell.ring
        self.host = HostAgent(self.store, self.clock, self.metrics, roles=sorted(settings.roles))
        self.moving = Moving(settings, self.store, self.queue, self.host, clock, self.metrics)
        self.elsewhere = elsewhere_of(settings, self.store, self.host, clock, self.metrics)
        self.stopping = asyncio.Event()
        self._booted = False
        self._unfit = False  # what this process was told cannot work, however long it waits
        self.trial = Trial(self.secrets, self.clock, egress_allow=settings.egress_allow)
        self.scratch = Scratch("history")
        self.lake = open_files(settings.lake, endpoint=settings.lake_endpoint) if settings.lake else None
        self.api: FastAPI | None = None
        if "api" in settings.roles:
            self.api = create_app(
                store=self.store,
                queue=self.queue,
                secrets=self.secrets,
                settings=settings,
                clock=self.clock,
                metrics=self.metrics,
                host=self.host,
                trial=self.trial,
                traces=self.traces,
                transfers=self.moving.service,
                erasures=erasures_of(settings, self.moving.sessions, self.queue, self.lake),
                elsewhere=self.elsewhere,
                local=self.store,
                history=None if self.lake is None else LakeReader(self.store, self.lake, self.scratch.path),
            )
        readiness = Readiness(
            {
                "store": self._store_answers,
                "queue": self._queue_answers,
                "host": self._host_is_live,
                "process": self._is_up,
            }
        )
        self.server = HttpServer(
            in_front(ops_app(readiness, self.metrics), self.api),
            host=settings.bind_host,
            port=settings.bind_port,
            lifespan=self.api is not None,
            drain_seconds=settings.drain_seconds,
        )

    async def run(self) -> int:
        """Live until a signal; the exit status."""
        serving = asyncio.create_task(self.server.serve())
        serving.add_done_callback(lambda _: self.stopping.set())
        leasing_ends = asyncio.Event()
        supervisor = Supervisor(self.metrics)
        tasks: list[asyncio.Task[None]] = []
        leasing: asyncio.Task[None] | None = None
        log.info("cell process started", roles=sorted(self.settings.roles), port=self.server.port)
        with self._signals():
            if await self._boot():
                leasing = asyncio.create_task(supervisor.keep("host", lambda: self.host, leasing_ends))
                tasks = [
                    asyncio.create_task(supervisor.keep(name, build, self.stopping), name=name)
                    for name, build in self._services()
                ]
                _calm_collector()
                self._booted = True
                await first_of(self.stopping, self.host.superseded)
                if self.host.superseded.is_set():
                    log.warning("the cell has another owner: this process begins anew")
                    self.stopping.set()
            failed = serving.done() or self._unfit
            log.info("cell process drains")
            if self.api is not None:
                self.api.state.services.desk.close()
            self.server.stop()
            bound = self.settings.drain_seconds + _CLOSING_SECONDS
            await asyncio.wait([serving, *tasks], timeout=bound)
            leasing_ends.set()
            await self._close([serving, *tasks, *([leasing] if leasing else [])])
        if failed:
            log.error("the process could not live" if self._unfit else "the HTTP server ended by itself")
            return 1
        log.info("cell process ended")
        return 0

    def _services(self) -> Iterator[tuple[str, Callable[[], Service]]]:
        """The chosen roles. Each start of one builds it anew."""
        store, queue, clock, host, metrics = self.store, self.queue, self.clock, self.host, self.metrics
        settings, roles = self.settings, self.settings.roles
        timing = TimerMetrics(metrics) if roles & {"loader", "dispatcher"} else None
        if "loader" in roles:
            yield "loader", lambda: Loader(store=store, queue=queue, clock=clock, metrics=timing)
            yield "sweeper", lambda: Sweeper(store=store, queue=queue, clock=clock, metrics=timing)
        if "dispatcher" in roles:
            yield (
                "dispatcher",
                lambda: Dispatcher(store=store, queue=queue, clock=clock, host=host, metrics=timing),
            )
        if "executor" in roles:
            yield (
                "executor",
                lambda: Executor(
                    store,
                    queue,
                    self.secrets,
                    host,
                    clock,
                    metrics,
                    slots=settings.executor_slots,
                    egress_allow=settings.egress_allow,
                    drain_seconds=settings.drain_seconds,
                    traces=self.traces,
                ),
            )
        yield from self.moving.roles()
        if "engine" in roles:
            yield (
                "engine",
                lambda: WorkflowEngine(store, queue, self.bell, host, clock, metrics),
            )
        if "reaper" in roles:
            late = settings.lateness_slo_seconds
            yield "reaper", lambda: Reaper(store, queue, host, clock, metrics, late_seconds=late)
            yield "operations", lambda: Operations(store, queue, host, clock, metrics)
            kept = timedelta(days=settings.runs_kept_days)
            yield "rescheduling", lambda: Rescheduling(store, queue, host, clock, metrics, kept=kept)
            yield "returning", lambda: Returning(store, queue, clock, metrics, host_id=lambda: host.host_id)
            yield "upkeep", lambda: Upkeep(store, metrics)
            yield "vitals", lambda: VitalSigns(store, metrics)
            if (elsewhere := self.elsewhere) is not None:
                yield "stores", lambda: elsewhere
        if "lake" in roles and self.lake is not None:
            files = self.lake
            yield (
                "lake",
                lambda: LakeService(
                    store,
                    files,
                    Place(region=settings.region, cell=lake_name(settings)),
                    metrics,
                    host_id=lambda: host.host_id,
                    kept=Kept(runs=settings.runs_kept_days, history=settings.history_kept_days),
                ),
            )
        if "meter" in roles:
            yield (
                "meter",
                lambda: MeterService(
                    store,
                    clock,
                    metrics,
                    host_id=lambda: host.host_id,
                    cell=settings.cell_name,
                    control_url=settings.control_url,
                    kid=settings.kid,
                    secret=settings.keys[settings.kid],
                ),
            )

    async def _boot(self) -> bool:
        """Migrate and connect, however long the engines take. False if told to stop first."""
        url = self.settings.database_url
        if self.settings.leased:
            await until_primary(url, self.stopping)
        return (
            await self._until_done("migrate", lambda: asyncio.to_thread(migrate, url))
            and await self._until_done("store", self.store.open)
            and await self._until_done("partitions", self._partitioned)
            and await self._until_done("queue", self.queue.open)
        )

    async def _partitioned(self) -> None:
        """Before the first write: rows that lie in a default partition stay there."""
        try:
            await self.store.ensure_partitions(days_ahead=DAYS_AHEAD)
        except Retryable as fault:
            # Busy writers of other processes have the partitions already, or upkeep will see to it.
            log.warning("partitions not looked at", fault=str(fault)[:200])

    async def _until_done(self, what: str, step: Callable[[], Awaitable[object]]) -> bool:
        pause = FIRST_PAUSE
        while not self.stopping.is_set():
            try:
                await step()
            except Terminal as fault:
                # Another cell's database, or migrations that are not this code's: no outage.
                log.error("cannot start", step=what, fault=str(fault)[:300])
                self._unfit = True
                self.stopping.set()
            except Exception as fault:  # noqa: BLE001 - whatever keeps an engine away is waited out
                log.warning("waiting for an engine", step=what, fault=str(fault)[:300])
            else:
                return True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self.stopping.wait()
            pause = min(pause * 2, LONGEST_PAUSE)
        return False

    async def _close(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for what, close in (
            ("desk", self._tasks_settled),
            ("feed", self._feed_flushed),
            ("lease", self.host.retire),
            ("bell", self.bell.close),
            ("stores", self._stores_left),
            ("queue", self.queue.close),
            ("store", self.store.close),
            ("scratch", self._scratch_removed),
            ("traces", self._traces_sent),
        ):
            try:
                async with asyncio.timeout(3.0):
                    await close()
            except (Retryable, TimeoutError, OSError) as fault:
                log.warning("not closed cleanly", what=what, fault=str(fault)[:200])

    async def _tasks_settled(self) -> None:
        """What was claimed for workers and waited for another region."""
        if self.api is not None:
            await self.api.state.services.desk.settled()

    async def _feed_flushed(self) -> None:
        """What the API has committed and not told the queue yet."""
        if self.api is not None:
            await self.api.state.services.close()
            await self.trial.close()

    async def _stores_left(self) -> None:
        if self.elsewhere is not None:
            await self.elsewhere.close()

    async def _traces_sent(self) -> None:
        if self.traces is not None:
            await self.traces.close()

    async def _scratch_removed(self) -> None:
        self.scratch.close()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    # --- readiness -----------------------------------------------------------------------
    async def _store_answers(self) -> None:
        await self.store.ping()

    async def _queue_answers(self) -> None:
        await self.queue.depths()

    async def _host_is_live(self) -> None:
        _ = self.host.host_id

    async def _is_up(self) -> None:
        if not self._booted:
            raise Retryable("starting")
        if self.stopping.is_set():
            raise Retryable("draining")


def _named(settings: Settings) -> dict[str, str]:
    return {"clockhouse.cell": settings.cell_name, "clockhouse.region": settings.region}


def _calm_collector() -> None:
    """What is there after the start stays; it need not be looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def _main(settings: Settings, clock: Clock) -> int:
    try:
        process = Process(settings, clock)
    except OSError as fault:
        log.error("cannot listen", bind=f"{settings.bind_host}:{settings.bind_port}", fault=str(fault))
        return 1
    return await process.run()


def main(arguments: Sequence[str] | None = None, *, clock: Clock | None = None) -> int:
    """Exit status: 0 after a drain, 1 if it could not live, 2 for settings that are no settings.

    `clock` stands in for the machine's own.
    """
    parser = argparse.ArgumentParser(prog="python -m cells.host", description="A process of a cell.")
    parser.add_argument("--roles", help=f"comma separated; all by default: {','.join(ROLES)}")
    chosen = parser.parse_args(arguments)
    try:
        settings = Settings.from_env(os.environ, roles=chosen.roles)
    except SettingsError as error:
        for fault in error.faults:
            print(fault, file=sys.stderr)
        return 2
    logs.configure(settings.log_level, cell=settings.cell_name, pid=str(os.getpid()))
    if gone := forget_the_dead():
        log.info("folders of processes that were killed are removed", folders=gone)
    return uvloop.run(_main(settings, clock or SystemClock()))


if __name__ == "__main__":
    sys.exit(main())
