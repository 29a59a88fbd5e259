"""The executor: takes released work, claims it, calls targets, records what came of it.

    queue -> intake: claim committed, next members added -> lane: free slot of its class
          -> attempt: free slot at the target (else it waits there, without a slot), a last look,
             the call -> completions (group commit)

Here the parts are put together, looked after and drained. Work that cannot be called inside
its lease is released: it goes back to the queue, and the attempt is not counted. What this host
holds without knowing it (the answer to a claim was lost) is found by an audit and taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from aiohttp.abc import AbstractResolver

from cells.domain.job import Priority
from cells.execution.attempts import Attempts
from cells.execution.calling import Caller
from cells.execution.completions import Completions
from cells.execution.drills import Drills
from cells.execution.handing_on import HandingOn
from cells.execution.held import Held
from cells.execution.host_agent import HostAgent
from cells.execution.intake import Intake
from cells.execution.lanes import Lane, Work, shares_of
from cells.execution.limits import Limits
from cells.execution.targets import MAX_AGE_SECONDS, Target, Targets
from cells.execution.yielding import Yielding
from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.observability.traces import Traces
from cells.ports import Clock, Queue, Retryable, Secrets, Store

log = logger(__name__)

_TICK_SECONDS = 0.25
AUDIT_SECONDS = 5.0
#: How far apart the clocks of this host and the store may be for the audit (seconds).
_CLOCKS_APART_SECONDS = 2.0
#: How long a drain waits for the store, beside the time for calls in flight (seconds).
_STORE_SECONDS = 5.0


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
        traces: Traces | None = None,
    ):
        self._store = store
        self._host = host
        self._clock = clock
        self._drain_seconds = drain_seconds
        self._held = Held()
        self._returning: list[Work] = []
        self._targets = Targets(store, secrets, clock)
        self._caller = Caller(egress_allow=egress_allow, resolver=resolver)
        self._onward = HandingOn(queue, metrics)
        self._completions = Completions(store, self._onward, host, clock, metrics, done=self._held.discard)
        self._drills = Drills(store)
        self._lanes: dict[Priority, Lane] = {}
        self._limits = Limits(
            store,
            queue,
            self._targets,
            self._lanes,
            self._returning,
            clock,
            metrics,
            host_id=lambda: host.host_id,
        )
        self._attempts = Attempts(
            self._targets,
            self._limits,
            self._caller,
            self._completions,
            host,
            clock,
            metrics,
            held=self._held,
            returning=self._returning,
            drills=self._drills,
            traces=traces,
        )
        self._lanes.update({p: Lane(p, n, self._attempts.call) for p, n in shares_of(slots).items()})
        self._yielding = Yielding(self._lanes, clock)
        self._intake = Intake(
            store,
            queue,
            self._onward,
            self._targets,
            self._limits,
            host,
            clock,
            metrics,
            lanes=self._lanes,
            held=self._held,
        )
        self._audited = clock.monotonic()
        self._released = metrics.counter("executor_releases_total", "Claims given back uncalled")
        self._orphans = metrics.counter(
            "executor_orphans_total", "Runs held without knowing it (lost answers), taken back"
        )
        metrics.gauge(
            "executor_yielding_part", "Part of their slots that classes may use beside others' work"
        ).set_function(lambda: self._yielding.part)
        in_flight = metrics.gauge("executor_in_flight", "Slots of a class in use", ["priority"])
        parked = metrics.gauge(
            "executor_parked", "Claims waiting for their target or another region", ["priority"]
        )
        for priority, lane in self._lanes.items():
            in_flight.labels(priority.name.lower()).set_function(_running_of(lane))
            parked.labels(priority.name.lower()).set_function(_parked_of(lane))

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`, then drain."""
        await self._caller.start()
        writer = asyncio.create_task(self._completions.run())
        helpers = [asyncio.create_task(self._intake.listen()), asyncio.create_task(self._tick())]
        helpers.append(asyncio.create_task(self._limits.run()))
        helpers.append(asyncio.create_task(self._yielding.run()))
        pumps = [asyncio.create_task(self._intake.pump(lane)) for lane in self._lanes.values()]
        halt = asyncio.create_task(stop.wait())
        everything = [halt, writer, *helpers, *pumps]
        try:
            done, _ = await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            if halt not in done:
                raise RuntimeError("a part of the executor ended") from next(iter(done)).exception()
            await self._drain(pumps, writer)
        finally:
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
            for lane in self._lanes.values():
                await lane.close()
            await self._caller.close()

    # --- upkeep --------------------------------------------------------------------------
    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = self._clock.monotonic()
            for target in self._targets.all():
                if target.waiting:
                    self._expire(target, now)
                    self._limits.admit(target)
            await self._intake.put_back_early()
            try:
                await self._give_back()
                # Ahead of time, so that calls of busy targets never wait for it.
                await self._targets.refresh(
                    self._targets.in_use(within=MAX_AGE_SECONDS), max_age=MAX_AGE_SECONDS / 2
                )
                if now - self._audited > AUDIT_SECONDS:
                    await self._audit()
                    await self._drills.tell(self._host.host_id)
                    self._audited = now
            except Retryable as fault:
                log.debug("upkeep waits for the store", fault=str(fault)[:200])
            except Exception:
                log.exception("upkeep failed in here")

    def _expire(self, target: Target, now: float) -> None:
        """Those who can no longer be called inside their lease leave the line."""
        over = [work for work in target.waiting if now > work.last_start]
        for work in over:
            target.waiting.remove(work)
            work.lane.unpark(work)
        self._returning.extend(over)

    async def _give_back(self) -> None:
        """Release what was not called. `Retryable` keeps it for the next time."""
        returning = self._returning
        batch, returning[:] = returning[:], []
        now = self._clock.monotonic()
        held = []
        for work in batch:
            if self._host.holds(work.host_id) and now < work.lease_until:
                held.append(work)
            else:
                self._attempts.fenced(work)
        if not held:
            return
        try:
            members = await self._store.release([w.claim for w in held], host_id=self._host.host_id)
        except Retryable:
            returning.extend(held)
            raise
        except Exception:
            # Left to the audit, which takes what nobody holds: kept, they would come back for ever.
            for work in held:
                self._held.discard(work)
            raise
        for work in held:
            self._held.discard(work)
        self._released.inc(len(held))
        await self._onward.add(await self._limits.put_back(members, held))

    async def _audit(self) -> None:
        """Compare what the store says this host holds with what it knows of. A claim that was
        committed but never answered would else lie until its lease ends."""
        since = self._clock.monotonic() - self._intake.answered_until() + _CLOCKS_APART_SECONDS
        members = await self._store.reap_orphans(
            host_id=self._host.host_id,
            held=[work.claim for work in self._held],
            older_than_ms=round(since * 1000),
        )
        if members:
            self._orphans.inc(len(members))
            log.warning("runs held without knowing it are taken back", runs=len(members))
            await self._onward.add(members)

    # --- the end -------------------------------------------------------------------------
    async def _drain(self, pumps: Sequence[asyncio.Task[None]], writer: asyncio.Task[None]) -> None:
        """Stop taking, finish what is being called, release the rest, write all."""
        self._attempts.stopping = True
        self._intake.stop()
        # A claim under way is waited for: its runs would stay claimed by nobody.
        if self._host.live():
            await _within(_STORE_SECONDS, *(_ended(pump) for pump in pumps))
        self._returning.extend(await self._intake.give_up())
        for lane in self._lanes.values():
            self._returning.extend(lane.ready)
            lane.ready.clear()
            for target, members in lane.back:
                await self._limits.park([(member, target.key[1]) for member in members])
            lane.back.clear()
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

    async def _calls_ended(self) -> None:
        while any(lane.running for lane in self._lanes.values()):
            await asyncio.sleep(0.01)

    async def _all_given_back(self) -> None:
        while self._returning:
            try:
                await self._give_back()
            except Retryable:
                await asyncio.sleep(0.1)
            except Exception:
                log.exception("claims not given back before the end; their runs will be reclaimed")


def _running_of(lane: Lane) -> Callable[[], float]:
    return lambda: float(lane.running)


def _parked_of(lane: Lane) -> Callable[[], float]:
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
