"""One limit per target for all executors of a cell: what is claimed, what is parked, what comes back.

A few times a second every executor exchanges what it saw of its targets for shares of their limits
(`cells.limits`), all in one round trip; between exchanges a call costs a few integers. While Valkey is
away it goes on alone, with its part of what was known.

Work for a target that cannot take it now is *parked*: before it is claimed where the target is known to
be tight; what was claimed already and would wait for long is released first. Neither costs an
attempt, and neither holds a slot or a claim.
"""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence

from cells.domain.capacity import told_by
from cells.domain.job import Priority
from cells.domain.retry import parse_retry_after
from cells.domain.run import AttemptOutcome
from cells.execution.lanes import Lane, Work
from cells.execution.limit_events import LimitEvents
from cells.execution.limit_metrics import LimitMetrics
from cells.execution.recording import Answer, instant
from cells.execution.targets import Target, Targets
from cells.limits import TargetKey, TargetReport, TargetShare
from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Clock, Member, Queue, Retryable, Store

log = logger(__name__)

#: Exchanges are this far apart while anything is going on (seconds), at most and at least.
EXCHANGE_SECONDS = 0.1
URGENT_SECONDS = 0.02
#: ... and while nothing is.
IDLE_SECONDS = 1.0
#: What an executor holds comes back to the others when it has been silent for this long.
LEASE_MS = 2_000
_LEASE_SECONDS = LEASE_MS / 1000
#: A call to a target that was not heard of waits for its share for this long at most (seconds).
_MEETING_SECONDS = 0.25
#: Claims that have waited for a slot this long, and are far from getting one, are given back (seconds).
_PATIENCE_SECONDS = 0.5
#: Claims that wait for fast targets may be this many seconds of calls.
_WAITING_SECONDS = 1.0
#: Parked members are taken for this part of a lane even if it is full, or they would never come.
_LANE_PART = 16


class Limits:
    """The executor's side of all shared limits."""

    def __init__(
        self,
        store: Store,
        queue: Queue,
        targets: Targets,
        lanes: Mapping[Priority, Lane],
        returning: list[Work],
        clock: Clock,
        metrics: Metrics,
        *,
        host_id: Callable[[], int],
    ):
        self._store = store
        self._queue = queue
        self._targets = targets
        self._lanes = lanes
        self._returning = returning
        self._clock = clock
        self._name = secrets.token_hex(6)
        self._events = LimitEvents(store, host_id)
        self._metrics = LimitMetrics(metrics)
        self._executors = 1
        self._away = False
        self._tight: dict[TargetKey, Target] = {}
        self._tight_tenants: frozenset[object] = frozenset()
        self._meeting: list[tuple[Target, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self._rung = False
        self._exchanged_at = clock.monotonic()

    # --- on the way of calls -------------------------------------------------------------
    def met(self, target: Target, now: float) -> bool:
        """Whether the target's share is still ours."""
        return now - target.load.heard_at < _LEASE_SECONDS

    async def meet(self, target: Target) -> None:
        """Have a share of the target, or go on without after a moment."""
        if self._away or self.met(target, self._clock.monotonic()):
            return
        heard = asyncio.get_running_loop().create_future()
        self._meeting.append((target, heard))
        self._wake.set()
        await asyncio.wait([heard], timeout=_MEETING_SECONDS)

    def ended(self, work: Work, answer: Answer, outcome: AttemptOutcome) -> None:
        """A call that was sent has ended."""
        load, now_ms = work.target.load, None
        load.end(work, answer, outcome, self._clock.monotonic())
        if answer.ratelimit is not None:
            now_ms = self._clock.now_ms()
            told = told_by(answer.ratelimit, answer.ratelimit_policy, now_ms=now_ms)
            if told is not None:
                load.was_told(told)
                work.target.limit = min(work.target.limit, told.remaining)
        if answer.retry_after is not None and answer.status in (429, 503):
            now_ms = now_ms or self._clock.now_ms()
            wait_ms = parse_retry_after(answer.retry_after, instant(now_ms))
            if wait_ms:
                load.asked_to_pause(now_ms + wait_ms)
                work.target.limit = 0
                self._metrics.pauses.inc()
        if not self._rung and load.urgent():
            # Others hear of it at once; what comes close together is told together.
            self._rung = True
            asyncio.get_running_loop().call_later(URGENT_SECONDS, self._wake.set)

    # --- before a claim ------------------------------------------------------------------
    async def sift(self, members: Sequence[Member]) -> tuple[Sequence[Member], list[Target]]:
        """Park those whose targets cannot take them. The others, and the targets at which a place was
        kept for them until `claimed`."""
        tenants = self._tight_tenants
        if not tenants or not any(member.tenant_id in tenants for member in members):
            return members, []
        asked = [member for member in members if member.tenant_id in tenants]
        names = iter(await self._store.member_targets(asked))
        keep: list[Member] = []
        aside: list[tuple[Member, str]] = []
        kept: list[Target] = []
        now = self._clock.monotonic()
        for member in members:
            name = next(names) if member.tenant_id in tenants else None
            target = None if name is None else self._tight.get((member.tenant_id, name))
            if target is None or name is None or target.free:
                keep.append(member)
            elif target.load.parked == 0 and self._room(target) > 0:
                keep.append(member)
                target.load.coming += 1
                kept.append(target)
            else:
                target.used_at = now
                target.load.crowded = True
                aside.append((member, name))
        try:
            await self.park(aside)
        except BaseException:
            self.claimed(kept)
            raise
        return keep, kept

    @staticmethod
    def claimed(targets: Sequence[Target]) -> None:
        """Those for whom a place was kept have been claimed, or are stale."""
        for target in targets:
            target.load.coming -= 1

    async def park(self, aside: Sequence[tuple[Member, str]]) -> None:
        """Put members aside. What Valkey does not take, the straggler sweep finds."""
        if not aside:
            return
        try:
            await self._queue.park(aside)
        except Retryable as fault:
            log.warning("parked work is left to the sweep", members=len(aside), fault=str(fault)[:200])
            return
        self._metrics.parkings.inc(len(aside))
        for member, name in aside:
            load = self._targets.get((member.tenant_id, name)).load
            load.parked = max(load.parked, 1)

    async def put_back(self, members: Sequence[Member], works: Sequence[Work]) -> list[Member]:
        """Park what was released because its target was busy; the rest, for the queue."""
        named = {_named(work): work for work in works}
        rest: list[Member] = []
        aside: list[tuple[Member, str]] = []
        for member in members:
            work = named.get((member.tenant_id, member.parent_id, member.scheduled_for, member.ordinal))
            if work is not None and (work.parked or work.target.key in self._tight):
                aside.append((member, work.target.key[1]))
            else:
                rest.append(member)
        await self.park(aside)
        return rest

    def _room(self, target: Target) -> int:
        load = target.load
        return target.limit + (load.ahead() if target.limit else 0) - load.held - load.coming

    # --- the exchange --------------------------------------------------------------------
    async def run(self) -> None:
        """Exchange for ever."""
        while True:
            try:
                await self._exchange()
            except Exception:
                log.exception("exchanging limits failed in here")
            await self._pause()

    async def _pause(self) -> None:
        if self._meeting:
            return
        busy = any(self._active(target) for target in self._targets.all())
        try:
            async with asyncio.timeout(EXCHANGE_SECONDS if busy else IDLE_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            return

    def _active(self, target: Target) -> bool:
        load = target.load
        if target.state is None and not target.free:
            return False  # not read yet: nothing is known that could be reported
        return bool(target.running or load.held or load.ended or load.parked or target.waiting)

    async def _exchange(self) -> None:
        self._wake.clear()
        self._rung = False
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        meeting, self._meeting = self._meeting, []
        met = {target for target, _ in meeting}
        targets = [t for t in self._targets.all() if t in met or (self._active(t) and now >= t.load.look_at)]
        await self._report(targets, now, now_ms)
        for _, heard in meeting:
            if not heard.done():
                heard.set_result(None)

    async def _report(self, targets: Sequence[Target], now: float, now_ms: int) -> None:
        passed, self._exchanged_at = now - self._exchanged_at, now
        room = self._lane_room(targets)
        reports = [self._report_of(target, room, now, passed) for target in targets]
        try:
            answer = await self._queue.exchange(self._name, reports, lease_ms=LEASE_MS)
        except Retryable as fault:
            if not self._away:
                log.warning(
                    "limits are not shared: each executor goes on with its part", fault=str(fault)[:200]
                )
            self._away = True
            for target, report in zip(targets, reports, strict=True):
                target.limit = target.load.alone(
                    report.observed, executors=self._executors, now=now, now_ms=now_ms
                )
            self._settle(targets, now, now_ms)
            return
        self._away, self._executors = False, answer.executors
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        for target, share in zip(targets, answer.shares, strict=True):
            self._heard(target, share, now, now_ms)
        self._settle(targets, now, now_ms)
        await self._events.tell()
        if answer.forsaken:
            adopted = [self._targets.get(key) for key in answer.forsaken]
            await self._targets.refresh(adopted)
            for target in adopted:
                target.load.parked = max(target.load.parked, 1)

    def _report_of(
        self, target: Target, room: tuple[int, int, int, int], now: float, passed: float
    ) -> TargetReport:
        load = target.load
        load.measure(passed)
        return TargetReport(
            key=target.key,
            initial=load.initial,
            most=load.most,
            running=target.running,
            wanted=target.running + len(target.waiting),
            held=load.held + load.coming,
            ahead=load.ahead(),
            free=target.free,
            members=room,
            observed=load.take(now),
            known_limit=load.limit,
        )

    def _heard(self, target: Target, share: TargetShare, now: float, now_ms: int) -> None:
        load, before = target.load, target.load.limit
        target.limit = load.heard(share, now)
        if share.limit < before:
            self._metrics.decreases.inc()
        if share.broke or share.recovered:
            self._metrics.breaker(opened=share.broke)
            self._events.happened(target.key, share)
        # A target that cannot be called is looked at when that ends, or once a second.
        until_ms = max(share.until_ms, share.paused_until_ms)
        closed = share.calls == 0 and until_ms > now_ms and not target.running
        load.look_at = now + min((until_ms - now_ms) / 1000, IDLE_SECONDS) if closed else now
        back: dict[Lane, list[Member]] = {}
        for member in share.members:
            back.setdefault(self._lanes[Priority(member.priority)], []).append(member)
        for lane, members in back.items():
            lane.bring_back(target, members)

    def _settle(self, targets: Sequence[Target], now: float, now_ms: int) -> None:
        """Whoever waits and may go, goes; whoever waits in vain is given back."""
        for target in targets:
            self.admit(target)
            if target.waiting:
                self._lose_patience(target, now)
        tight = {
            t.key: t
            for t in self._targets.all()
            if not t.free and (t.load.tight(now, now_ms) or self._room(t) <= 0)
        }
        self._tight, self._tight_tenants = tight, frozenset(tenant for tenant, _ in tight)
        self._metrics.look(self._targets.all())

    def admit(self, target: Target) -> None:
        """Let as many of those who wait for the target try again as it has slots."""
        for _ in range(min(target.limit - target.running, len(target.waiting))):
            work = target.waiting.popleft()
            work.lane.unpark(work)
            work.lane.put(work)

    def _lose_patience(self, target: Target, now: float) -> None:
        keep = int(target.load.pace * _WAITING_SECONDS) if target.limit else 0
        if target.limit and now - target.waiting[0].waits_since < _PATIENCE_SECONDS:
            return
        while len(target.waiting) > keep:
            work = target.waiting.pop()
            work.lane.unpark(work)
            self._returning.append(work)

    def _lane_room(self, targets: Sequence[Target]) -> tuple[int, int, int, int]:
        sharing = max(1, sum(target.load.parked > 0 for target in targets))
        room = {
            p: max(max(lane.room(), lane.slots // _LANE_PART) // sharing, 1)
            for p, lane in self._lanes.items()
        }
        return (
            room.get(Priority.CRITICAL, 0), room.get(Priority.HIGH, 0),
            room.get(Priority.DEFAULT, 0), room.get(Priority.LOW, 0),
        )  # fmt: skip


def _named(work: Work) -> tuple[uuid.UUID, uuid.UUID, int, int]:
    """As members name runs."""
    key = work.claim.key
    return work.claim.tenant_id, key.parent_id, int(key.scheduled_for.timestamp()), key.ordinal
