"""The executor: takes released work, claims it, calls targets, records what came of it.

Per class: pop, claim in a batch, hand the next timers on, call. A claim goes through these hands:

    queue -> (claim committed, next members added) -> lane: free slot of its class
          -> target: free slot there, else it waits at the target without a slot
          -> a last look (own lease, run lease, clock) -> call -> completions (group commit)

Work that cannot be called inside its lease is released: it goes back to the queue, and the
attempt is not counted.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import Any

from aiohttp.abc import AbstractResolver

from cells.domain.job import Priority
from cells.execution.calling import Caller
from cells.execution.completions import Completions
from cells.execution.handing_on import HandingOn
from cells.execution.headers import attempt_traceparent, call_headers
from cells.execution.host_agent import HostAgent
from cells.execution.lanes import Lane, Work, shares_of
from cells.execution.recording import Answer, completion_of, unusable
from cells.execution.targets import MAX_AGE_SECONDS, Target, Targets
from cells.observability.logs import logger
from cells.observability.metrics import LATENESS_BUCKETS, SIZE_BUCKETS, Metrics
from cells.ports import Clock, Conflict, Member, Queue, Retryable, Secrets, Store, Terminal

log = logger(__name__)

#: Members claimed in one transaction at most.
CLAIM_BATCH = 250
#: Looked for work at least this often, should a signal get lost (seconds).
POLL_SECONDS = 1.0
_TICK_SECONDS = 0.25
#: How long a drain waits for the store, beside the time for calls in flight.
_STORE_SECONDS = 5.0
_BODILESS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


class Executor:
    """Role `executor`."""

    def __init__(
        self,
        store: Store,
        queue: Queue,
        secrets: Secrets,
        host: HostAgent,
        clock: Clock,
        metrics: Metrics,
        *,
        slots: int = 1024,
        egress_allow: frozenset[str] = frozenset(),
        drain_seconds: float = 20.0,
        resolver: AbstractResolver | None = None,
    ):
        self._store = store
        self._queue = queue
        self._host = host
        self._clock = clock
        self._drain_seconds = drain_seconds
        self._targets = Targets(store, secrets, clock)
        self._caller = Caller(egress_allow=egress_allow, resolver=resolver)
        self._onward = HandingOn(queue, metrics)
        self._completions = Completions(store, self._onward, host, clock, metrics)
        self._lanes = {p: Lane(p, slots, self._call) for p, slots in shares_of(slots).items()}
        self._returning: list[Work] = []
        self._early_members: list[Member] = []
        self._stopping = False
        self._away = False  # an engine, at the last attempt
        # Jitter needs no secrecy, and this is called for every run.
        self._random = random.Random()
        self._declare(metrics)

    def _declare(self, metrics: Metrics) -> None:
        lateness = metrics.histogram(
            "scheduler_dispatch_lateness_seconds",
            "First attempts: start of the call minus due time",
            ["priority"],
            LATENESS_BUCKETS,
        )
        self._lateness = {p: lateness.labels(p.name.lower()) for p in Priority}
        claims = metrics.counter("executor_claims_total", "Members claimed, by result", ["result"])
        self._won, self._lost, self._early, self._unsure = (
            claims.labels(result) for result in ("won", "lost", "early", "unsure")
        )
        self._batch = metrics.histogram(
            "executor_claim_batch_size", "Members in one claim", buckets=SIZE_BUCKETS
        )
        self._claim_seconds = metrics.histogram(
            "executor_claim_seconds", "Claim transactions, from call to answer"
        )
        self._released = metrics.counter("executor_releases_total", "Claims given back uncalled")
        self._fenced = metrics.counter(
            "executor_fenced_total", "Claims dropped because this host's lease had lapsed"
        )
        in_flight = metrics.gauge("executor_in_flight", "Slots of a class in use", ["priority"])
        parked = metrics.gauge("executor_parked", "Claims waiting for a slot at their target", ["priority"])
        for priority, lane in self._lanes.items():
            in_flight.labels(priority.name.lower()).set_function(_running_of(lane))
            parked.labels(priority.name.lower()).set_function(_parked_of(lane))

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`, then drain."""
        await self._caller.start()
        writer = asyncio.create_task(self._completions.run())
        helpers = [asyncio.create_task(self._listen()), asyncio.create_task(self._tick())]
        pumps = [asyncio.create_task(self._pump(lane)) for lane in self._lanes.values()]
        halt = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait(
                [halt, writer, *helpers, *pumps], return_when=asyncio.FIRST_COMPLETED
            )
            if halt not in done:
                raise RuntimeError("a part of the executor ended") from next(iter(done)).exception()
            await self._drain(pumps, writer)
        finally:
            everything = [halt, writer, *helpers, *pumps]
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
            for lane in self._lanes.values():
                await lane.close()
            await self._caller.close()

    # --- from the queue to the lanes -----------------------------------------------------
    async def _listen(self) -> None:
        """One subscriber for all lanes."""
        while True:
            try:
                await self._queue.wait_ready(timeout=POLL_SECONDS)
            except Retryable:
                await asyncio.sleep(POLL_SECONDS)
            for lane in self._lanes.values():
                lane.wake.set()

    async def _pump(self, lane: Lane) -> None:
        measured = self._clock.monotonic()
        pause = 0.05
        while not self._stopping:
            await self._host.wait_live()
            if not lane.worthwhile():
                await lane.wait_room()
                continue
            now = self._clock.monotonic()
            lane.measure(now - measured)
            measured = now
            lane.wake.clear()
            try:
                members = await self._queue.pop(
                    priority=int(lane.priority),
                    limit=min(lane.room(), CLAIM_BATCH),
                    but_not=tuple(lane.full_tenants),
                )
                if members:
                    await self._claim(lane, members)
            except Retryable as fault:
                self._interrupted(fault)
                await asyncio.sleep(pause)
                pause = min(pause * 2, POLL_SECONDS)
                continue
            pause = 0.05
            if members:
                self._interrupted(None)
            if not members and not self._stopping:
                await lane.wake.wait()

    def _interrupted(self, fault: Retryable | None) -> None:
        """Say so once for all lanes, and once when it is over."""
        if fault is not None and not self._away:
            log.warning("no work can be taken", fault=str(fault)[:200])
        elif fault is None and self._away:
            log.info("work is taken again")
        self._away = fault is not None

    async def _claim(self, lane: Lane, members: Sequence[Member]) -> None:
        self._batch.observe(len(members))
        sent = self._clock.monotonic()
        try:
            host_id = self._host.host_id
            result = await self._store.claim(members, host_id=host_id, host_name=self._host.name)
        except Retryable:
            # Whether it was committed is not known. Members of claims that were are stale now;
            # the others must come back.
            self._unsure.inc(len(members))
            await self._onward.add(members)
            raise
        except (Terminal, Conflict) as fault:
            await self._claim_apart(lane, members, fault)
            return
        self._claim_seconds.observe(self._clock.monotonic() - sent)
        self._won.inc(len(result.claims))
        self._lost.inc(len(result.stale))
        self._early.inc(len(result.too_early))
        await self._onward.add(result.next_members)
        # The store's clock is behind: at once they would only be too early again.
        self._early_members.extend(result.too_early)
        await self._onward.refund(result.stale)
        for claim in result.claims:
            own = self._lanes[Priority(claim.priority)]
            target = self._targets.get((claim.tenant_id, claim.definition.target.target_id))
            own.put(Work(claim, host_id=host_id, claimed_at=sent, target=target, lane=own))

    async def _claim_apart(self, lane: Lane, members: Sequence[Member], fault: Exception) -> None:
        """The store refused the batch: find the one it refuses, the others must not wait for it."""
        if len(members) == 1:
            self._lost.inc()
            log.error("the store refuses a claim", tenant=str(members[0].tenant_id), fault=str(fault)[:200])
            return
        middle = len(members) // 2
        await self._claim(lane, members[:middle])
        await self._claim(lane, members[middle:])

    # --- one piece of work ---------------------------------------------------------------
    async def _call(self, work: Work) -> None:
        target = work.target
        if target.running >= target.limit and target.state is not None:
            work.lane.park(work, first=work.parked)
            return
        target.running += 1
        try:
            await self._attempt(work)
        except Exception:
            # Left to the reaper, which counts it: released, it would come back for ever.
            log.exception("a claim failed in here", run=work.run_id, epoch=work.claim.epoch)
        finally:
            target.running -= 1
            self._admit(target, 1)

    def _admit(self, target: Target, count: int) -> None:
        """Let that many of those who wait for the target try again."""
        for _ in range(min(count, len(target.waiting))):
            work = target.waiting.popleft()
            work.lane.unpark(work)
            work.lane.put(work)

    async def _attempt(self, work: Work) -> None:
        claim, target = work.claim, work.target
        read = self._targets.fresh(target)
        while True:
            # Looked at again after every wait: the world may have moved on.
            if not self._host.holds(work.host_id):
                self._fenced.inc()
                return
            if self._stopping or self._clock.monotonic() > work.last_start:
                self._returning.append(work)
                return
            if not read:
                read = await self._read(target)
                continue
            if target.running > target.limit:
                # Known only now that it was read.
                work.lane.park(work, first=work.parked)
                return
            started_ms = self._clock.now_ms()
            early_ms = claim.due_ms - started_ms
            if early_ms <= 0:
                break
            await asyncio.sleep(early_ms / 1000)
            read = self._targets.fresh(target)
        if target.state != "APPROVED":
            self._finish(work, unusable(target.state), None)
            return
        if claim.attempt == 1:
            self._lateness[work.lane.priority].observe((started_ms - claim.due_ms) / 1000)
        self._finish(work, await self._send(work, started_ms), started_ms)

    async def _read(self, target: Target) -> bool:
        """Have the target read; whether it was."""
        try:
            await self._targets.refresh((target,))
        except Retryable:
            await asyncio.sleep(0.1)
            return False
        return True

    async def _send(self, work: Work, started_ms: int) -> Answer:
        claim, target = work.claim, work.target
        definition = claim.definition
        method = definition.target.method
        body = claim.payload
        if body is None:
            body = b"" if method in _BODILESS else b"{}"
        timestamp = str(started_ms // 1000)
        headers = call_headers(
            target.headers,
            definition.headers,
            run_id=work.run_id,
            epoch=claim.epoch,
            attempt=claim.attempt,
            timestamp=timestamp,
            signature=target.signer.sign(work.run_id, timestamp, body),
            traceparent=attempt_traceparent(claim.traceparent, work.run_id, self._random.getrandbits(64)),
        )
        return await self._caller.call(
            method,
            target.url(definition.target.path),
            headers,
            body or None,
            definition.target.timeout_seconds,
        )

    def _finish(self, work: Work, answer: Answer, started_ms: int | None) -> None:
        self._completions.add(
            completion_of(
                work.claim,
                answer,
                started_ms=started_ms,
                finished_ms=self._clock.now_ms(),
                host=self._host.name,
                rand=self._random.random(),
            ),
            lease_until=work.lease_until,
        )

    # --- upkeep --------------------------------------------------------------------------
    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = self._clock.monotonic()
            for target in self._targets.all():
                if target.waiting:
                    self._expire(target, now)
                    self._admit(target, target.limit - target.running)
            early, self._early_members = self._early_members, []
            await self._onward.add(early)
            try:
                await self._give_back()
                # Ahead of time, so that calls of busy targets never wait for it.
                await self._targets.refresh(
                    self._targets.in_use(within=MAX_AGE_SECONDS), max_age=MAX_AGE_SECONDS / 2
                )
            except Retryable as fault:
                log.debug("upkeep waits for the store", fault=str(fault)[:200])

    def _expire(self, target: Target, now: float) -> None:
        """Those who can no longer be called inside their lease leave the line."""
        over = [work for work in target.waiting if now > work.last_start]
        for work in over:
            target.waiting.remove(work)
            work.lane.unpark(work)
        self._returning.extend(over)

    async def _give_back(self) -> None:
        """Release what was not called. `Retryable` keeps it for the next time."""
        batch, self._returning = self._returning, []
        now = self._clock.monotonic()
        held = [work for work in batch if self._host.holds(work.host_id) and now < work.lease_until]
        self._fenced.inc(len(batch) - len(held))
        if not held:
            return
        try:
            members = await self._store.release([w.claim for w in held], host_id=self._host.host_id)
        except Retryable:
            self._returning.extend(held)
            raise
        self._released.inc(len(held))
        await self._onward.add(members)

    async def _drain(self, pumps: Sequence[asyncio.Task[None]], writer: asyncio.Task[None]) -> None:
        """Stop taking, finish what is being called, release the rest, write all."""
        self._stopping = True
        for lane in self._lanes.values():
            lane.wake.set()
        # A claim under way is waited for: its runs would stay claimed by nobody.
        await _within(_STORE_SECONDS, *(_ended(pump) for pump in pumps if not self._idle(pump)))
        for lane in self._lanes.values():
            self._returning.extend(lane.ready)
            lane.ready.clear()
        for target in self._targets.all():
            self._returning.extend(target.waiting)
            target.waiting.clear()
        await _within(self._drain_seconds, self._calls_ended(), self._all_given_back())
        cut = sum(lane.running for lane in self._lanes.values())
        if cut:
            log.warning("calls cut off by the end of the drain; their runs will be reclaimed", calls=cut)
        self._completions.close()
        await _within(_STORE_SECONDS, _ended(writer))
        if len(self._completions):
            log.error("completions not written before the end", completions=len(self._completions))

    def _idle(self, pump: asyncio.Task[None]) -> bool:
        return pump.done() or not self._host.live()

    async def _calls_ended(self) -> None:
        while any(lane.running for lane in self._lanes.values()):
            await asyncio.sleep(0.01)

    async def _all_given_back(self) -> None:
        while self._returning:
            try:
                await self._give_back()
            except Retryable:
                await asyncio.sleep(0.1)


def _running_of(lane: Lane) -> Any:
    return lambda: float(lane.running)


def _parked_of(lane: Lane) -> Any:
    return lambda: float(sum(lane.parked.values()))


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


async def _within(seconds: float, *waits: Coroutine[Any, Any, None]) -> None:
    """Wait for all, but no longer than that."""
    try:
        async with asyncio.timeout(seconds):
            await asyncio.gather(*waits)
    except TimeoutError:
        return
