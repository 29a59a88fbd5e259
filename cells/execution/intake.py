"""From the queue to the lanes: pop, claim in a batch, hand the next timers on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from cells.domain.job import STRICT, Priority
from cells.execution.confirming import Confirming
from cells.execution.handing_on import HandingOn
from cells.execution.held import Held
from cells.execution.host_agent import HostAgent
from cells.execution.lanes import Lane, Work
from cells.execution.limits import Limits
from cells.execution.targets import Target, Targets
from cells.observability.logs import logger
from cells.observability.metrics import SIZE_BUCKETS, Metrics
from cells.ports import Claim, Clock, Member, Queue, Retryable, Store

log = logger(__name__)

#: Members claimed in one transaction at most.
CLAIM_BATCH = 250
#: Looked for work at least this often, should a signal get lost (seconds).
POLL_SECONDS = 1.0


class Intake:
    """Feeds the lanes. What was claimed is in `held` until it has been dealt with."""

    def __init__(
        self,
        store: Store,
        queue: Queue,
        onward: HandingOn,
        targets: Targets,
        limits: Limits,
        host: HostAgent,
        clock: Clock,
        metrics: Metrics,
        *,
        lanes: Mapping[Priority, Lane],
        held: Held,
    ):
        self._store = store
        self._queue = queue
        self._onward = onward
        self._targets = targets
        self._limits = limits
        self._host = host
        self._clock = clock
        self._lanes = lanes
        self._held = held
        self._early: list[Member] = []
        self._asking: dict[Lane, float] = {}  # claims without an answer: when they were sent
        self._confirming = Confirming(store, host, clock)
        self._stopping = False
        self._away = False  # an engine, at the last attempt
        claims = metrics.counter("executor_claims_total", "Members claimed, by result", ["result"])
        self._won, self._lost, self._too_early, self._unsure = (
            claims.labels(result) for result in ("won", "lost", "early", "unsure")
        )
        self._batch = metrics.histogram(
            "executor_claim_batch_size", "Members in one claim", buckets=SIZE_BUCKETS
        )
        self._seconds = metrics.histogram("executor_claim_seconds", "Claim transactions, from call to answer")

    def stop(self) -> None:
        """Take nothing more; `pump` returns after the claim under way."""
        self._stopping = True
        for lane in self._lanes.values():
            lane.wake.set()

    async def give_up(self) -> list[Work]:
        """What was claimed and waits for another region: to be given back by a host that stops."""
        return await self._confirming.give_up()

    def answered_until(self) -> float:
        """Every claim sent before this instant of the steady clock has been dealt with."""
        return min(self._asking.values(), default=self._clock.monotonic())

    async def put_back_early(self) -> None:
        """The store's clock was behind: at once they would only have been too early again."""
        early, self._early = self._early, []
        await self._onward.add(early)

    async def listen(self) -> None:
        """One subscriber for all lanes; runs for ever."""
        while True:
            try:
                await self._queue.wait_ready(timeout=POLL_SECONDS)
            except Retryable:
                await asyncio.sleep(POLL_SECONDS)
            for lane in self._lanes.values():
                lane.wake.set()

    async def pump(self, lane: Lane) -> None:
        """Keep one lane busy until `stop`."""
        measured = self._clock.monotonic()
        pause = 0.05
        while not self._stopping:
            await self._host.wait_live()
            if not lane.worthwhile() and not lane.back:
                await lane.wait_room()
                continue
            now = self._clock.monotonic()
            lane.measure(now - measured)
            measured = now
            lane.wake.clear()
            try:
                popped = await self._take(lane)
            except Retryable as fault:
                self._interrupted(fault)
                await asyncio.sleep(pause)
                pause = min(pause * 2, POLL_SECONDS)
                continue
            except Exception:
                log.exception("taking work failed in here", priority=lane.priority.name)
                await asyncio.sleep(POLL_SECONDS)
                continue
            pause = 0.05
            if popped:
                self._interrupted(None)
            elif not self._stopping:
                await lane.wake.wait()

    async def _take(self, lane: Lane) -> int:
        """Pop and claim; how many were popped."""
        popped, members, kept = await self._next(lane)
        try:
            if members:
                await self._claim(lane, members)
        finally:
            # However it ended: a place that is kept for nobody would be kept for ever.
            self._limits.claimed(kept)
        return popped

    async def _next(self, lane: Lane) -> tuple[int, Sequence[Member], list[Target]]:
        """How many were popped, those of them to claim, and the targets that keep places for them."""
        if lane.back:
            target, members = lane.back.popleft()
            return len(members), members, [target] * len(members)
        popped = await self._queue.pop(
            # A plain number: clients encode enums by their names.
            priority=int(lane.priority),
            limit=min(lane.room(), CLAIM_BATCH),
            but_not=tuple(lane.full_tenants),
        )
        lane.came({member.tenant_id for member in popped}, self._clock.monotonic())
        try:
            return len(popped), *await self._limits.sift(popped)
        except Retryable:
            await self._onward.add(popped)
            raise

    def _interrupted(self, fault: Retryable | None) -> None:
        """Say so once for all lanes, and once when it is over."""
        if fault is not None and not self._away:
            log.warning("no work can be taken", fault=str(fault)[:200])
        elif fault is None and self._away:
            log.info("work is taken again")
        self._away = fault is not None

    async def _claim(self, lane: Lane, members: Sequence[Member]) -> None:
        self._batch.observe(len(members))
        sent = self._asking[lane] = self._clock.monotonic()
        try:
            host_id = self._host.host_id
            result = await self._store.claim(members, host_id=host_id, host_name=self._host.name)
        except Retryable:
            # Whether it was committed is not known. Members of claims that were are stale now, and
            # their runs are found by the audit; the others must come back.
            self._unsure.inc(len(members))
            await self._onward.add(members)
            raise
        except Exception as fault:  # noqa: BLE001 - the refused one is logged below
            await self._claim_apart(lane, members, fault)
            return
        finally:
            self._asking.pop(lane, None)
        # No wait between the answer and this: the audit would take what nobody holds.
        self._seconds.observe(self._clock.monotonic() - sent)
        works = [self._work(claim, host_id, sent) for claim in result.claims]
        self._held.add_all(works)
        self._won.inc(len(works))
        self._lost.inc(len(result.stale))
        self._too_early.inc(len(result.too_early))
        self._early.extend(result.too_early)
        await self._onward.announce(result.offered)
        await self._onward.add(result.next_members)
        await self._onward.refund(result.stale)
        strict = [work for work in works if work.claim.definition.region_policy == STRICT]
        for work in works:
            if work.claim.definition.region_policy != STRICT:
                work.lane.put(work)
        if strict:
            self._confirming.put(strict)

    def _work(self, claim: Claim, host_id: int, sent: float) -> Work:
        return Work(
            claim,
            host_id=host_id,
            claimed_at=sent,
            target=self._targets.get((claim.tenant_id, claim.definition.target.target_id)),
            lane=self._lanes[Priority(claim.priority)],
        )

    async def _claim_apart(self, lane: Lane, members: Sequence[Member], fault: Exception) -> None:
        """The store refused the batch: find the one it refuses, the others must not wait for it."""
        if len(members) == 1:
            self._lost.inc()
            log.error(
                "the store refuses a claim",
                tenant=str(members[0].tenant_id),
                job=str(members[0].parent_id),
                fault=f"{type(fault).__name__}: {fault}"[:200],
            )
            return
        middle = len(members) // 2
        try:
            await self._claim(lane, members[:middle])
        except Retryable:
            await self._onward.add(members[middle:])  # not asked for, and popped already
            raise
        await self._claim(lane, members[middle:])
