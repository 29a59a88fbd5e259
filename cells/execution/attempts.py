"""One piece of work: its turn at the target, the last look, the call, the record."""

from __future__ import annotations

import asyncio
import random

from cells.domain.job import Delivery, Priority
from cells.domain.run import AttemptOutcome
from cells.execution.calling import Caller
from cells.execution.completions import Completions
from cells.execution.drills import Drills
from cells.execution.headers import call_headers
from cells.execution.held import Held
from cells.execution.host_agent import HostAgent
from cells.execution.lanes import Work
from cells.execution.limits import Limits
from cells.execution.recording import Answer, completion_of, unusable, wanted_of
from cells.execution.targets import MAX_AGE_SECONDS, Target, Targets
from cells.execution.tracing import record, trace_of
from cells.observability.logs import logger
from cells.observability.metrics import LATENESS_BUCKETS, Metrics
from cells.observability.traces import Traces
from cells.ports import Clock, Retryable
from cells.spans import attempt_span, attempt_state

log = logger(__name__)

_BODILESS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


class Attempts:
    """Makes the calls. What it cannot call is in `returning`, to be released."""

    def __init__(
        self,
        targets: Targets,
        limits: Limits,
        caller: Caller,
        completions: Completions,
        host: HostAgent,
        clock: Clock,
        metrics: Metrics,
        *,
        held: Held,
        returning: list[Work],
        drills: Drills,
        traces: Traces | None = None,
    ):
        self._targets = targets
        self._limits = limits
        self._drills = drills
        self._traces = traces
        self._caller = caller
        self._completions = completions
        self._host = host
        self._clock = clock
        self._held = held
        self.returning = returning
        self.stopping = False
        # Jitter needs no secrecy, and this is called for every run.
        self._random = random.Random()
        lateness = metrics.histogram(
            "scheduler_dispatch_lateness_seconds",
            "First attempts: start of the call minus due time",
            ["priority"],
            LATENESS_BUCKETS,
        )
        self._lateness = {p: lateness.labels(p.name.lower()) for p in Priority}
        self._fenced = metrics.counter(
            "executor_fenced_total", "Claims dropped because this host's lease had lapsed"
        )

    async def call(self, work: Work) -> None:
        """In a slot of its class: call it, or have it wait at its target without that slot."""
        target = work.target
        if target.running >= target.limit and target.state == "APPROVED":
            self._park(work)
            return
        target.running += 1
        try:
            await self._attempt(work)
        except Exception:
            # Left to the audit, which counts it: released, it would come back for ever.
            log.exception(
                "a claim failed in here", run=work.run_id, epoch=work.claim.epoch, trace=trace_of(work)
            )
            self._held.discard(work)
        finally:
            target.running -= 1
            if target.waiting:
                self._limits.admit(target)

    def _park(self, work: Work) -> None:
        work.target.load.crowded = True
        work.lane.park(work, first=work.parked, now=self._clock.monotonic())

    def fenced(self, work: Work) -> None:
        """This host has lost it with its lease; whoever reaps takes it back."""
        self._fenced.inc()
        self._held.discard(work)

    async def _attempt(self, work: Work) -> None:
        claim, target = work.claim, work.target
        read = self._fresh(target)
        while True:
            # Looked at again after every wait: the world may have moved on.
            if not self._host.holds(work.host_id):
                self.fenced(work)
                return
            if self.stopping or self._clock.monotonic() > work.last_start:
                self.returning.append(work)
                return
            if not read:
                read = await self._read(target)
                continue
            if target.running > target.limit and target.state == "APPROVED":
                # Known only now that it was read.
                self._park(work)
                return
            started_ms = self._clock.now_ms()
            early_ms = claim.due_ms - started_ms
            if early_ms <= 0:
                break
            await asyncio.sleep(early_ms / 1000)
            read = self._fresh(target)
        if target.fault is not None:
            self._finish(work, Answer(error=target.fault, reached=False), None)
            return
        if target.state != "APPROVED":
            self._finish(work, unusable(target.state), None)
            return
        if claim.attempt == 1 and claim.series == 1:
            self._lateness[work.lane.priority].observe((started_ms - claim.due_ms) / 1000)
        answer = None
        target.load.begin(work, self._clock.monotonic())
        try:
            answer = await self._send(work, started_ms)
        finally:
            if answer is None:
                target.load.gone(work)
        if answer is None:
            self.fenced(work)
            return
        outcome = self._finish(work, answer, started_ms)
        self._limits.ended(work, answer, outcome)
        if target.drill_percent and outcome is AttemptOutcome.SUCCEEDED:
            await self._drill(work, started_ms)

    async def _drill(self, work: Work, started_ms: int) -> None:
        """Deliver it a second time, for a share of the calls: same key, same token, same body. The run
        is recorded already; a lease that is nearly over, or a drain, leaves it at once."""
        if self._random.random() * 100 >= work.target.drill_percent or self.stopping:
            return
        once = work.claim.definition.delivery is Delivery.AT_MOST_ONCE
        if once or self._clock.monotonic() > work.last_start:
            return
        second = await self._send(work, started_ms)
        if second is not None:
            self._drills.delivered(work.target.key, work.run_id, second)

    def _fresh(self, target: Target) -> bool:
        now = self._clock.monotonic()
        return now - target.read_at <= MAX_AGE_SECONDS and self._limits.met(target, now)

    async def _read(self, target: Target) -> bool:
        """Have the target read, and a share of it; whether it was."""
        try:
            await self._targets.refresh((target,))
            await self._limits.meet(target)  # what it allows is part of the report
        except Retryable:
            await asyncio.sleep(0.1)
            return False
        return True

    async def _send(self, work: Work, started_ms: int) -> Answer | None:
        claim, target = work.claim, work.target
        definition = claim.definition
        method = definition.target.method
        body = claim.payload
        if body is None:
            body = b"" if method in _BODILESS else b"{}"
        timestamp = str(started_ms // 1000)
        span = attempt_span(claim, work.run_id, self._random.getrandbits(64))
        headers = call_headers(
            target.headers,
            definition.headers,
            run_id=work.run_id,
            epoch=claim.epoch,
            attempt=claim.attempt,
            timestamp=timestamp,
            signature=target.signer.sign(work.run_id, timestamp, body),
            compensates=definition.activity.forward_key if definition.activity else "",
            traceparent=span,
            tracestate=attempt_state(claim) or "",
        )
        began_ms = self._clock.now_ms()
        answer = await self._caller.call(
            method,
            target.url(definition.target.path),
            headers,
            body or None,
            definition.target.timeout_seconds,
            lambda: self._host.holds(work.host_id),
            once=definition.delivery is Delivery.AT_MOST_ONCE,
            wanted=wanted_of(claim),
        )
        if self._traces is not None and answer is not None:
            record(self._traces, work, span, answer, began_ms=began_ms, ended_ms=self._clock.now_ms())
        return answer

    def _finish(self, work: Work, answer: Answer, started_ms: int | None) -> AttemptOutcome:
        completion = completion_of(
            work.claim,
            answer,
            started_ms=started_ms,
            finished_ms=self._clock.now_ms(),
            host=self._host.name,
            rand=self._random.random(),
        )
        self._completions.add(work, completion)
        return completion.attempt.outcome
