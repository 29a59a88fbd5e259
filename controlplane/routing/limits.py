"""`api_requests_per_second` per tenant: GCRA in Valkey, shared by all routers.

Requests that arrive while a check is under way travel together in the next one, so Valkey
sees one call per round trip however many requests there are. When Valkey is away or slow,
each router counts by itself (`cells.domain.rates`) and no request waits: the first one that
meets the fault pays the timeout, then a circuit keeps the others away until a probe answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from cells.contract import ErrorCode
from cells.domain.rates import gcra, remaining
from controlplane.routing.refusal import Refusal
from controlplane.routing.valkey import Line, ReplyError, open_line

log = logging.getLogger(__name__)

_SCRIPT = files(__package__).joinpath("gcra.lua").read_text()
_SHA = hashlib.sha1(_SCRIPT.encode()).hexdigest().encode()  # noqa: S324 - the name Valkey gives it
_TIMEOUT_S = 0.05
_PROBE_S = 1.0
_BATCH = 256
#: Tenants remembered by the fallback; the oldest entries go first.
_REMEMBERED = 10_000

_FAULTS = (ReplyError, OSError, TimeoutError)


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


_Asked = tuple[str, int, "asyncio.Future[Verdict]"]


class Limiter:
    """Asks Valkey in batches; counts alone while Valkey is away."""

    def __init__(self, url: str, *, now_ms: Callable[[], int], timeout_s: float = _TIMEOUT_S) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._now_ms = now_ms
        self._line: Line | None = None
        self._waiting: list[_Asked] = []
        self._batch: list[_Asked] = []  # on its way
        self._turn: asyncio.Handle | None = None  # when the next batch goes, or the one on its way is late
        self._opening: asyncio.Task[None] | None = None
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
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Verdict] = loop.create_future()
        self._waiting.append((tenant_id, rate, future))
        if self._turn is None and self._opening is None:
            # Those of this turn of the loop go together.
            self._turn = loop.call_soon(self._fly)
        return await future

    async def close(self) -> None:
        """Stop the background work and close the connection."""
        for task in (self._opening, self._probe):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._turn is not None:
            self._turn.cancel()
        if self._line is not None:
            self._line.close()

    def _fly(self) -> None:
        """Send the next batch, if anybody waits."""
        self._turn = None
        if not self._waiting:
            return
        if self._line is None or not self._line.is_open:
            self._opening = asyncio.create_task(self._open(), name="limits-open")
            return
        self._batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
        self._ask(b"EVALSHA", _SHA)

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                self._line = await open_line(self._url)
        except _FAULTS as fault:
            self._opening = None
            self._fail(fault)
            return
        self._opening = None
        self._fly()

    def _ask(self, command: bytes, script: bytes) -> None:
        line = self._line
        if line is None:
            return
        keys = [f"ch:router:api:{tenant_id}" for tenant_id, _, _ in self._batch]
        rates = [text for _, rate, _ in self._batch for text in (str(rate), str(rate))]
        self._turn = asyncio.get_running_loop().call_later(
            self._timeout_s, self._fail, TimeoutError("no answer in time")
        )
        line.ask((command, script, str(len(keys)), *keys, *rates), self._answered)

    def _answered(self, answer: Any) -> None:
        if self._turn is not None:
            self._turn.cancel()
        if isinstance(answer, ReplyError) and str(answer).startswith("NOSCRIPT"):
            self._ask(b"EVAL", _SCRIPT.encode())  # a restarted server: this teaches it again
            return
        if isinstance(answer, Exception):
            self._fail(answer)
            return
        batch, self._batch = self._batch, []
        for (_, _, future), (allowed, wait, left, full) in zip(batch, answer, strict=True):
            if not future.done():
                future.set_result(Verdict(allowed=bool(allowed), wait_ms=wait, left=left, full_ms=full))
        self._fly()

    def _fail(self, fault: Exception) -> None:
        """Everybody who waits is judged here, and Valkey left alone until it answers again."""
        log.warning("valkey is away, counting alone: %r", fault)
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        if self._line is not None:
            self._line.close()
            self._line = None
        self._probe = asyncio.create_task(self._watch(), name="limits-probe")
        unjudged = self._batch + self._waiting
        self._batch, self._waiting = [], []
        for tenant_id, rate, future in unjudged:
            if not future.done():
                future.set_result(self._judge_alone(tenant_id, rate))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_PROBE_S)
            try:
                async with asyncio.timeout(self._timeout_s):
                    self._line = await open_line(self._url)
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
