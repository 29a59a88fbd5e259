"""Calling a target once, by hand: signed and guarded like a run's call, but no run."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from cells.domain.outcome import CallError
from cells.domain.trace import span_of_run
from cells.execution.calling import Caller
from cells.execution.headers import call_headers
from cells.execution.targets import Target
from cells.ports import Clock, SealedSecret, Secrets, TargetRow, TrialOutcome
from cells.secrets import CannotOpen

_BODILESS = frozenset({"GET", "DELETE"})


class Trial:
    """`ports.TargetTrial`. Connections are opened at the first call."""

    def __init__(self, secrets: Secrets, clock: Clock, *, egress_allow: Collection[str]):
        self._secrets = secrets
        self._clock = clock
        self._egress_allow = egress_allow
        self._caller: Caller | None = None
        self._random = random.Random()  # span ids need no secrecy

    async def call(
        self,
        row: TargetRow,
        secrets: Sequence[SealedSecret],
        *,
        test_id: str,
        method: str,
        path: str,
        payload: bytes | None,
        timeout_seconds: int,
    ) -> TrialOutcome:
        """See `ports.TargetTrial.call`."""
        target = Target((row.tenant_id, row.target_id))
        try:
            target.set(row, secrets, self._secrets)
        except (CannotOpen, UnicodeDecodeError):
            fault = f"{CallError.TARGET}: its secrets do not open"
            return TrialOutcome(url="", status=None, error=fault, body=None, latency_ms=0)
        if self._caller is None:
            self._caller = Caller(egress_allow=self._egress_allow)
            await self._caller.start()
        if payload is None:
            payload = b"" if method in _BODILESS else b"{}"
        started_ms = self._clock.now_ms()
        timestamp = str(started_ms // 1000)
        headers = call_headers(
            target.headers,
            {},
            run_id=test_id,
            epoch=0,
            attempt=1,
            timestamp=timestamp,
            signature=target.signer.sign(test_id, timestamp, payload),
            traceparent=span_of_run(test_id, self._random.getrandbits(64)),
        )
        url = target.url(path)
        began = self._clock.monotonic()
        answer = await self._caller.call(method, url, headers, payload or None, float(timeout_seconds))
        latency_ms = round((self._clock.monotonic() - began) * 1000)
        if answer is None:
            raise RuntimeError("a call that nobody forbids was not made")
        return TrialOutcome(
            url=str(url), status=answer.status, error=answer.error, body=answer.body, latency_ms=latency_ms
        )

    async def close(self) -> None:
        """Drop its connections."""
        if self._caller is not None:
            await self._caller.close()
            self._caller = None
