"""The working half of a cell in this process: real store, real queue, dispatcher, executor, reaper."""

from __future__ import annotations

import asyncio
import inspect
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

from aiohttp.abc import AbstractResolver

from cells.clock import SystemClock
from cells.domain.ids import RunKey, fresh_id, shard_of
from cells.domain.job import (
    JobDefinition,
    JobState,
    Priority,
    RetryPolicy,
    Schedule,
    ScheduleType,
    TargetRef,
)
from cells.domain.run import TERMINAL
from cells.execution.executor import Executor
from cells.execution.host_agent import HostAgent
from cells.execution.reaper import Reaper
from cells.observability.metrics import Metrics
from cells.ports import (
    Created,
    Fence,
    Member,
    NewJob,
    Retryable,
    RunRow,
    SealedSecret,
    Store,
    TargetRow,
    TenantConfig,
    TenantPlacement,
)
from cells.secrets import SealedBox, target_context
from cells.store.postgres import PostgresStore
from cells.timers.dispatcher import Dispatcher
from cells.timers.metrics import TimerMetrics
from cells.timers.queue import ValkeyQueue
from tests.waiting import eventually

SIGNING = b"first signing secret, 32 bytes.."
FAST_RETRIES = RetryPolicy(max_attempts=3, initial_backoff_seconds=0.01, max_backoff_seconds=0.01)


class SteppedClock(SystemClock):
    """This machine's clock, set off by what the test says."""

    def __init__(self) -> None:
        self.ahead_ms = 0  # of wall time
        self.passed = 0.0  # on the steady clock, seconds

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def monotonic(self) -> float:
        return super().monotonic() + self.passed


class CutStore:
    """The store, behind a network that the test can cut for some of its methods."""

    def __init__(self, store: Store):
        self._store = store
        self.cut: set[str] = set()  # never arrives
        self.unanswered: set[str] = set()  # is done, and its answer lost
        #: Refused for good: batches that contain one for which this holds, by method.
        self.refused: dict[str, Callable[[Any], bool]] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            if name in self.cut:
                raise Retryable("cut")
            if name in self.refused and any(self.refused[name](item) for item in args[0]):
                raise LookupError("never seen such a thing")
            answer = await method(*args, **options)
            if name in self.unanswered:
                raise Retryable("cut after it was done")
            return answer

        return call


@dataclass
class Cell:
    """What a test works with."""

    store: PostgresStore
    network: CutStore  # what the parts see of the store
    queue: ValkeyQueue
    clock: SystemClock
    metrics: Metrics
    box: SealedBox
    host: HostAgent
    tenant: uuid.UUID
    slots: int
    drain_seconds: float
    resolver: AbstractResolver | None
    egress_allow: frozenset[str]
    executor_clock: SteppedClock
    stops: dict[str, asyncio.Event] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def fence(self) -> Fence:
        return Fence(tenant_id=self.tenant, epoch=1)

    # --- parts ---------------------------------------------------------------------------
    def begin(self, name: str) -> None:
        """Start one part: host, dispatcher, executor, reaper."""
        self.stops[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._build(name).run(self.stops[name]))

    def _build(self, name: str) -> Any:
        if name == "host":
            return self.host
        if name == "dispatcher":
            return Dispatcher(
                store=self.store,
                queue=self.queue,
                clock=self.clock,
                host=self.host,
                metrics=TimerMetrics(self.metrics),
            )
        if name == "reaper":
            return Reaper(cast(Store, self.network), self.queue, self.host, self.clock, self.metrics)
        return Executor(
            cast(Store, self.network),
            self.queue,
            self.box,
            self.host,
            self.executor_clock,
            self.metrics,
            slots=self.slots,
            egress_allow=self.egress_allow,
            drain_seconds=self.drain_seconds,
            resolver=self.resolver,
        )

    async def end(self, name: str) -> None:
        """Stop one part in order."""
        self.stops[name].set()
        await self.tasks.pop(name)

    # --- what there is to do -------------------------------------------------------------
    async def target(
        self, url: str, target_id: str = "tgt_test", *, max_concurrency: int = 100, **changes: Any
    ) -> TargetRow:
        """An approved target with one signing secret (and a credential, for `credential=`)."""
        credential = changes.pop("credential", None)
        now = datetime.now(UTC)
        row = TargetRow(
            tenant_id=self.tenant,
            target_id=target_id,
            state="APPROVED",
            version=1,
            base_url=url,
            owner_team=None,
            description=None,
            max_concurrency=max_concurrency,
            initial_concurrency=10,
            latency_slo_ms=2000,
            auth={"type": "HMAC_SHA256"},
            settings={},
            created_by="user:test",
            created_at=now,
            updated_at=now,
            approved_by="user:test",
            approved_at=now,
        )
        secrets = [self.sealed(target_id, SIGNING, 1)]
        if credential is not None:
            secrets.append(self.sealed(target_id, credential, 1, "CREDENTIAL"))
        return await self.store.create_target(
            self.fence, replace(row, **changes), secrets, host_id=self.host.host_id
        )

    def sealed(self, target_id: str, plain: bytes, generation: int, purpose: str = "SIGNING") -> SealedSecret:
        return SealedSecret(
            generation=generation,
            purpose=purpose,
            sealed=self.box.seal(plain, context=target_context(self.tenant, target_id, purpose)),
            created_at=datetime.now(UTC),
            expires_at=None,
        )

    async def run_now(self, target_id: str = "tgt_test", **more: Any) -> RunKey:
        """A job that is due now; the key its run will have. `more` is as `runs_now` has it."""
        (key,) = await self.runs_now(1, target_id, **more)
        return key

    async def runs_now(
        self,
        count: int,
        target_id: str = "tgt_test",
        *,
        payload: bytes | None = None,
        path: str = "",
        method: str = "POST",
        timeout_seconds: int = 30,
        retry_policy: RetryPolicy = FAST_RETRIES,
        headers: dict[str, str] | None = None,
        priority: Priority = Priority.DEFAULT,
        **more: Any,
    ) -> list[RunKey]:
        """Jobs that become due together, so that one claim takes them; the keys of their runs."""
        now_ms = self.clock.now_ms()
        scheduled = datetime.fromtimestamp(now_ms // 1000, UTC)
        definition = JobDefinition(
            schedule=Schedule(type=ScheduleType.NOW),
            target=TargetRef(target_id=target_id, path=path, method=method, timeout_seconds=timeout_seconds),
            retry_policy=retry_policy,
            headers=headers or {},
            priority=priority,
            **more,
        )
        jobs = [
            NewJob(
                job_id=job_id,
                definition=definition,
                payload=payload,
                shard=shard_of(job_id),
                window_ms=0,
                offset_ms=now_ms % 1000,
                next_run_at=scheduled,
                due_at=datetime.fromtimestamp(now_ms / 1000, UTC),
                state=JobState.ACTIVE,
                actor="user:test",
            )
            for job_id in (fresh_id(now_ms=now_ms, entropy=os.urandom(10)) for _ in range(count))
        ]
        created = await self.store.create_jobs([self.fence] * count, jobs, host_id=self.host.host_id)
        assert all(isinstance(one, Created) for one in created)
        await self.queue.add(
            [
                Member(
                    tenant_id=self.tenant,
                    parent_id=job.job_id,
                    scheduled_for=now_ms // 1000,
                    generation=1,
                    priority=int(priority),
                    due_ms=now_ms,
                    shard=job.shard,
                )
                for job in jobs
            ]
        )
        return [RunKey(parent_id=job.job_id, scheduled_for=scheduled, ordinal=1) for job in jobs]

    async def run(self, key: RunKey) -> RunRow | None:
        return await self.store.get_run(self.tenant, key)

    async def ended(self, key: RunKey, timeout: float = 10.0) -> RunRow:
        """The run, once it is in a terminal state."""

        async def look() -> RunRow | None:
            row = await self.run(key)
            return row if row is not None and row.state in TERMINAL else None

        row = await eventually(look, timeout)
        assert row is not None
        return row

    def count(self, name: str, **labels: str) -> float:
        """A metric's value now."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def cell(
    database_url: str,
    valkey_url: str,
    *,
    parts: tuple[str, ...] = ("host", "dispatcher", "executor"),
    slots: int = 64,
    drain_seconds: float = 5.0,
    resolver: AbstractResolver | None = None,
    egress_allow: frozenset[str] = frozenset({"loopback"}),
    lease_ms: int = 10_000,
    renew_seconds: float = 3.0,
    tenant: uuid.UUID | None = None,
) -> AsyncIterator[Cell]:
    """A cell whose parts run until the end of the block, and then stop in order."""
    clock, metrics = SystemClock(), Metrics()
    store = PostgresStore(database_url, cell_name="test", pool_size=6)
    network = CutStore(store)
    queue = ValkeyQueue(valkey_url, cell="test", clock=clock)
    await store.open()
    await queue.open()
    host = HostAgent(
        cast(Store, network),
        clock,
        metrics,
        roles=[part for part in parts if part != "host"],
        lease_ms=lease_ms,
        renew_seconds=renew_seconds,
    )
    made = Cell(
        store=store,
        network=network,
        queue=queue,
        clock=clock,
        executor_clock=SteppedClock(),
        metrics=metrics,
        box=SealedBox([b"k" * 32]),
        host=host,
        tenant=tenant or uuid.uuid4(),
        slots=slots,
        drain_seconds=drain_seconds,
        resolver=resolver,
        egress_allow=egress_allow,
    )
    try:
        await store.put_tenant(
            TenantPlacement(
                tenant_id=made.tenant,
                state="ACTIVE",
                ownership_epoch=1,
                config_version=1,
                config=TenantConfig(job_runs_per_second=10_000),
            )
        )
        for part in parts:
            made.begin(part)
            if part == "host":
                await host.wait_live()
        yield made
        for part in reversed(tuple(made.tasks)):
            if part != "host":
                await made.end(part)
        if "host" in made.tasks:
            await made.end("host")
            await host.retire()
    finally:
        for task in made.tasks.values():
            task.cancel()
        await asyncio.gather(*made.tasks.values(), return_exceptions=True)
        await queue.close()
        await store.close()
