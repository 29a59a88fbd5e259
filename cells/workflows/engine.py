"""Role `engine`: takes executions that have something to record or to decide, in batches, for ever.

Any number of processes may have it. The shards are divided among the live ones by arithmetic: two that
both believe in one for a moment do no harm, for executions are locked, and a pointer moves only from
where it was read.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from cells.contract import SHARDS
from cells.execution.handing_on import HandingOn
from cells.execution.host_agent import HostAgent
from cells.observability.logs import logger
from cells.observability.metrics import SIZE_BUCKETS, Metrics
from cells.ports import Clock, Conflict, Queue, Retryable, Store
from cells.timers.pacing import Backoff
from cells.workflow_ports import Stepped
from cells.workflows.bell import Bell
from cells.workflows.calculators import Calculators
from cells.workflows.job_runs import JobRuns
from cells.workflows.planner import CachedPlanner
from cells.workflows.quota import StepQuota

log = logger(__name__)

#: Executions of one transaction.
BATCH = 400
#: Looked for work at least this often, should nobody ring (seconds).
LOOK_SECONDS = 1.0
SHARE_SECONDS = 1.0
#: Until the next look where something is due that could not be taken (seconds).
TAKEN_ELSEWHERE_SECONDS = 0.1
#: Under load rounds are spaced out, so that each has several executions (seconds): behind a round of many,
#: and behind one that followed another closely.
GAP_SECONDS = 0.004
_BUSY = 8


class WorkflowEngine:
    """The role service."""

    def __init__(
        self,
        store: Store,
        queue: Queue,
        bell: Bell,
        host: HostAgent,
        clock: Clock,
        metrics: Metrics,
        *,
        batch: int = BATCH,
    ):
        self._store = store
        self._queue = queue
        self._onward = HandingOn(queue, metrics)
        self._bell = bell
        self._ear = bell.ear()
        self._job_runs = JobRuns(store, self._onward, bell.ear(), host)
        self._host = host
        self._clock = clock
        self._batch = batch
        self._calculators = Calculators(metrics, made=self._made)
        self._planner = CachedPlanner(self._calculators)
        self._also: set[tuple[uuid.UUID, uuid.UUID]] = set()  # whose values were made meanwhile
        self._quota = StepQuota()
        self._over: set[uuid.UUID] = set()  # who was passed over in the round before
        self._shards: list[int] = []
        self._share_again = 0.0
        self._rates_again = 0.0
        self._worked = float("-inf")  # steady clock: when the last round with work ended
        self._steps = metrics.counter("engine_steps_total", "Workflow steps that ended")
        self._events = metrics.counter("engine_events_total", "Events appended to histories")
        self._refolds = metrics.counter("engine_histories_read_total", "Histories that were not in the cache")
        self._lost = metrics.counter("engine_rounds_lost_total", "Rounds that were not committed")
        self._put_off = metrics.counter(
            "engine_put_off_total", "Executions that could not be decided or written: looked at later"
        )
        self._size = metrics.histogram("engine_batch_size", "Executions in one round", buckets=SIZE_BUCKETS)
        self._seconds = metrics.histogram("engine_round_seconds", "Rounds with work, from look to commit")

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; outages are waited out."""
        backoff = Backoff()
        stopping = asyncio.create_task(self._ring_at(stop))
        jobs = asyncio.create_task(self._job_runs.run(stop))
        try:
            while not stop.is_set():
                await self._host.wait_live()
                try:
                    pause = await self._round()
                    backoff.succeeded()
                except Conflict as fault:
                    self._forget(fault)
                    continue
                except Retryable as fault:
                    if backoff.failures == 0:
                        log.warning("workflows interrupted", fault=str(fault)[:200])
                    self._forget(fault)
                    pause = backoff.failed()
                except Exception as fault:
                    log.exception("a round of the engine failed in here")
                    self._forget(fault)
                    pause = LOOK_SECONDS
                if pause and not stop.is_set():
                    await self._ear.wait(pause)
        finally:
            stopping.cancel()
            if not stop.is_set():
                jobs.cancel()
            await asyncio.gather(jobs, self._calculators.close(), return_exceptions=True)

    def _made(self, askers: Iterable[Any]) -> None:
        self._also.update(askers)
        self._bell.ring()

    async def _ring_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._bell.ring()

    def _forget(self, fault: Exception) -> None:
        """Nobody knows what of it was committed."""
        self._lost.inc()
        self._planner.forget_all()

    async def _round(self) -> float:
        """One transaction; seconds until the next one, unless the bell rings."""
        started = self._clock.monotonic()
        if started >= self._share_again:
            await self._share()
            self._share_again = started + SHARE_SECONDS
        if not self._shards:
            return LOOK_SECONDS
        over, soonest = self._quota.over(started)
        if over and started >= self._rates_again:
            self._rates_again = started + SHARE_SECONDS
            share = len(self._shards) / SHARDS
            rates = await self._store.workflow_step_rates(over)
            self._quota.changed({tenant: rate * share for tenant, rate in rates.items()}, started)
            over, soonest = self._quota.over(started)
        misses, put_offs = self._planner.misses, self._planner.put_offs
        self._planner.begin()
        also, self._also = sorted(self._also), set()
        try:
            stepped = await self._store.step_workflows(
                self._planner,
                shards=self._shards,
                but_not=over,
                limit=self._batch,
                host_id=self._host.host_id,
                # What waits of a tenant that had to wait is older than what was found meanwhile.
                anew=not self._over <= set(over),
                also=also,
            )
            self._over = set(over)
        finally:
            self._put_off.inc(self._planner.put_offs - put_offs)
        self._planner.trim()
        pause = LOOK_SECONDS if soonest is None else min(LOOK_SECONDS, soonest)
        if not stepped.taken:
            return min(pause, await self._until_timer(over))
        self._measure(stepped, started, self._planner.misses - misses)
        await self._hand_on(stepped)
        if not any(turn.events for turn in stepped.turns):
            return min(pause, 0.05)
        close, self._worked = started - self._worked <= 2 * GAP_SECONDS, self._clock.monotonic()
        if (close or len(stepped.turns) >= _BUSY) and not stepped.more:
            await asyncio.sleep(GAP_SECONDS)
        return 0.0

    def _measure(self, stepped: Stepped, started: float, misses: int) -> None:
        now = self._clock.monotonic()
        self._size.observe(stepped.taken)
        self._seconds.observe(now - started)
        self._refolds.inc(misses)
        share = len(self._shards) / SHARDS
        for turn in stepped.turns:
            self._steps.inc(turn.steps)
            self._events.inc(len(turn.events))
            if turn.begun:
                rate = turn.taken.config.workflow_steps_per_second * share
                self._quota.begun(turn.taken.row.tenant_id, turn.begun, rate=rate, now=now)

    async def _hand_on(self, stepped: Stepped) -> None:
        """It is committed: what is not told here is found by sweeps and polls."""
        await self._onward.add(stepped.members)
        await self._onward.announce(stepped.offered)

    async def _until_timer(self, but_not: Sequence[uuid.UUID]) -> float:
        at = await self._store.next_workflow_timer(
            self._shards, but_not, within_ms=round(LOOK_SECONDS * 1000), anew=False
        )
        if at is None:
            return LOOK_SECONDS
        left = at.timestamp() - self._clock.now_ms() / 1000
        # One that is due and yet was not taken is in somebody else's hands.
        return min(max(left, 0.002), LOOK_SECONDS) if left > 0 else TAKEN_ELSEWHERE_SECONDS

    async def _share(self) -> None:
        hosts = list(await self._store.engine_hosts())
        mine = self._host.host_id
        if mine not in hosts:
            self._shards = []
            return
        place = hosts.index(mine)
        self._shards = [shard for shard in range(SHARDS) if shard % len(hosts) == place]
