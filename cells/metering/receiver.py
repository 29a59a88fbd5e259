"""The control plane as receiver of meters: one signed call, and what its answer means."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import aiohttp
import msgspec
from yarl import URL

from cells.contract import Caller, MeterRecord, Scope, SealedUntil, body_hash, sign_request
from cells.ports import Clock

PATH = "internal/meters"
#: A call takes at most this long (seconds): five thousand records are one statement there.
CALL_SECONDS = 30.0
#: Answers are one word a record; anything larger is not an answer.
_ANSWER_BYTES = 1 << 20
#: The call itself is at fault: sent again unchanged it would be refused again.
_OUR_FAULT = frozenset({400, 413, 422})
#: It was taken record by record; 409 where one of them contradicts the ledger.
_ANSWERED = frozenset({200, 409})


class Away(Exception):
    """Not taken, for a reason that may pass: unreachable, overloaded, does not know our key."""


class Rejected(Exception):
    """The call was refused as a whole, because of what it holds."""


class _Answer(msgspec.Struct):
    results: list[str]


_answers = msgspec.json.Decoder(_Answer)


class Receiver:
    """Sends records to the control plane. Use as a context manager."""

    def __init__(self, control_url: str, *, cell: str, kid: str, secret: bytes, clock: Clock) -> None:
        self._url = URL(control_url.rstrip("/") + "/" + PATH)
        self._caller = Caller(actor=f"cell:{cell}", scopes=(Scope.INTERNAL,))
        self._kid, self._secret, self._clock = kid, secret, clock
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=CALL_SECONDS), cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(
        self, records: Sequence[MeterRecord], watermarks: Sequence[SealedUntil] = ()
    ) -> Sequence[str]:
        """One result a record, in order. Raises `Away` or `Rejected`."""
        body = msgspec.json.encode({"records": records, "watermarks": watermarks})
        status, answer = await self._post(body)
        if status in _OUR_FAULT:
            raise Rejected(f"{status} {answer[:300].decode(errors='replace')}")
        if status not in _ANSWERED:
            raise Away(f"status {status}")
        try:
            results = _answers.decode(answer).results
        except msgspec.MsgspecError as fault:
            raise Away(f"unreadable answer: {fault}") from None
        if len(results) != len(records):
            raise Away(f"{len(results)} results for {len(records)} records")
        return results

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        if self._session is None:
            raise RuntimeError("not entered")
        headers = sign_request(
            kid=self._kid,
            secret=self._secret,
            now_ms=self._clock.now_ms(),
            method="POST",
            target=self._url.raw_path_qs,
            caller=self._caller,
            body_sha256=body_hash(body),
        )
        headers["Content-Type"] = "application/json"
        try:
            async with self._session.post(
                self._url, data=body, headers=headers, allow_redirects=False
            ) as response:
                return response.status, await _read(response)
        except (TimeoutError, aiohttp.ClientError, OSError) as fault:
            raise Away(repr(fault)[:300]) from None


async def _read(response: aiohttp.ClientResponse) -> bytes:
    answer = b""
    async for part in response.content.iter_any():
        answer += part
        if len(answer) > _ANSWER_BYTES:
            raise Away("the answer is too long")
    return answer
