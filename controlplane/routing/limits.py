"""`api_requests_per_second` per tenant: GCRA in Valkey, shared by all routers.

Requests that arrive while a check is under way travel together in the next one, so Valkey
sees one call per round trip however many requests there are. When Valkey is away or slow,
each router counts by itself (`cells.domain.rates`) and no request waits: the first one that
meets the fault pays the timeout, then a circuit keeps the others away until a probe answers.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from cells.contract import ErrorCode
from cells.domain.rates import gcra, remaining
from controlplane.routing.refusal import Refusal

log = logging.getLogger(__name__)

_SCRIPT = files(__package__).joinpath("gcra.lua").read_text()
_TIMEOUT_S = 0.05
_PROBE_S = 1.0
_BATCH = 256
#: Tenants remembered by the fallback; the oldest entries go first.
_REMEMBERED = 10_000

_FAULTS = (RedisError, OSError, TimeoutError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What became of one request. Times are milliseconds."""

    allowed: bool
    wait_ms: int  # until the same request would pass; 0 when it passed
    left: int  # requests that would pass now
    full_ms: int  # until the whole allowance is free again

    def headers(self, rate: int) -> tuple[tuple[bytes, bytes], ...]:
        """`RateLimit-Policy` and `RateLimit`."""
        reset_ms = self.full_ms if self.allowed else self.wait_ms
        return (
            (b"ratelimit-policy", b'"api";q=%d;w=1;qu="requests"' % rate),
            (b"ratelimit", b'"api";r=%d;t=%d' % (self.left, max(1, math.ceil(reset_ms / 1000)))),
        )

    def refusal(self, rate: int) -> Refusal:
        """The 429 for a request that was not allowed."""
        return Refusal(
            429,
            ErrorCode.QUOTA_EXCEEDED,
            f"This tenant may send {rate} API requests a second. Retry after the time given.",
            retry_after_s=self.wait_ms / 1000,
            extensions={"scope": "tenant", "violated-policies": ["api"]},
        )


#: A tenant whose allowance is 0.
_CLOSED = Verdict(allowed=False, wait_ms=60_000, left=0, full_ms=60_000)


class Limiter:
    """Asks Valkey in batches; counts alone while Valkey is away."""

    def __init__(self, valkey: Redis, *, now_ms: Callable[[], int], timeout_s: float = _TIMEOUT_S) -> None:
        self._valkey = valkey
        self._timeout_s = timeout_s
        self._now_ms = now_ms
        self._sha: str | None = None
        self._waiting: list[tuple[str, int, asyncio.Future[Verdict]]] = []
        self._flight: asyncio.Task[None] | None = None
        self._probe: asyncio.Task[None] | None = None
        self._alone: dict[str, float] = {}
        self.fallbacks = 0  # requests judged without Valkey

    @property
    def circuit_open(self) -> bool:
        """Whether Valkey is left alone until a probe answers."""
        return self._probe is not None

    async def check(self, tenant_id: str, rate: int) -> Verdict:
        """Count one request of a tenant that may send `rate` a second."""
        if rate <= 0:
            return _CLOSED
        if self._probe is not None:
            return self._judge_alone(tenant_id, rate)
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting.append((tenant_id, rate, future))
        if self._flight is None:
            self._flight = asyncio.create_task(self._fly(), name="limits")
        return await future

    async def close(self) -> None:
        """Stop the background work and close the connections."""
        for task in (self._flight, self._probe):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._valkey.aclose()

    async def _fly(self) -> None:
        batch: list[tuple[str, int, asyncio.Future[Verdict]]] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
                async with asyncio.timeout(self._timeout_s):
                    answers = await self._ask(batch)
                for (_, _, future), (allowed, wait, left, full) in zip(batch, answers, strict=True):
                    if not future.done():
                        future.set_result(
                            Verdict(allowed=bool(allowed), wait_ms=wait, left=left, full_ms=full)
                        )
        except _FAULTS as fault:
            log.warning("valkey is away, counting alone: %r", fault)
            self._probe = asyncio.create_task(self._watch(), name="limits-probe")
        finally:
            self._flight = None
            unjudged, self._waiting = batch + self._waiting, []
            for tenant_id, rate, future in unjudged:
                if not future.done():
                    future.set_result(self._judge_alone(tenant_id, rate))

    async def _ask(self, batch: list[tuple[str, int, asyncio.Future[Verdict]]]) -> list[list[int]]:
        keys = [f"ch:router:api:{tenant_id}" for tenant_id, _, _ in batch]
        rates = [text for _, rate, _ in batch for text in (str(rate), str(rate))]
        valkey: Any = self._valkey
        if self._sha is not None:
            try:
                answer: list[list[int]] = await valkey.evalsha(self._sha, len(keys), *keys, *rates)
                return answer
            except NoScriptError:
                pass  # a restarted server: EVAL below teaches it again
        answer = await valkey.eval(_SCRIPT, len(keys), *keys, *rates)
        self._sha = await valkey.script_load(_SCRIPT)
        return answer

    async def _watch(self) -> None:
        valkey: Any = self._valkey
        while True:
            await asyncio.sleep(_PROBE_S)
            try:
                async with asyncio.timeout(self._timeout_s):
                    await valkey.ping()
            except _FAULTS:
                continue
            log.info("valkey is back")
            self._probe = None
            return

    def _judge_alone(self, tenant_id: str, rate: int) -> Verdict:
        self.fallbacks += 1
        now = self._now_ms()
        allowed, tat, wait = gcra(self._alone.pop(tenant_id, 0.0), now, rate, rate)
        self._alone[tenant_id] = tat
        if len(self._alone) > _REMEMBERED:
            del self._alone[next(iter(self._alone))]
        return Verdict(
            allowed=allowed,
            wait_ms=math.ceil(wait),
            left=remaining(tat, now, rate, rate),
            full_ms=math.ceil(max(0.0, tat - now)),
        )
