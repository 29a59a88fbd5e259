"""Whom a cell asks about a move: the control plane, who the tenant's owner is; the other cell, to take the
end of a call that began here."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import aiohttp
import msgspec
from yarl import URL

from cells.contract import CELLS_KID, Caller, MoveSide, Scope, body_hash, cells_key, sign_request
from cells.domain import ids
from cells.ports import Clock, Completion, Retryable
from cells.returns import Away, AwayPage

#: A call takes at most this long (seconds).
CALL_SECONDS = 5.0
_SETTLE = "/internal/moves/settle"


class Settled(msgspec.Struct, frozen=True):
    """Where a tenant lives, by its ownership row."""

    cell: str
    epoch: int
    url: str = ""  # of that cell's internal API


class _Taken(msgspec.Struct):
    applied: list[bool]


class _Signed:
    def __init__(self, *, cell: str, kid: str, secret: bytes, clock: Clock) -> None:
        self._caller = Caller(actor=f"cell:{cell}", scopes=(Scope.INTERNAL.value,))
        self._kid, self._secret, self._clock = kid, secret, clock

    async def post(self, base: str, path: str, body: bytes) -> bytes:
        """The answer of a call that was taken; `Retryable` for everything else."""
        url = URL(base.rstrip("/") + path)
        headers = sign_request(
            kid=self._kid,
            secret=self._secret,
            now_ms=self._clock.now_ms(),
            method="POST",
            target=url.raw_path_qs,
            caller=self._caller,
            body_sha256=body_hash(body),
        )
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.post(
                    url,
                    data=body,
                    headers={**headers, "Content-Type": "application/json"},
                    allow_redirects=False,
                ) as answer,
            ):
                text = await answer.read()
                if answer.status != 200:
                    raise Retryable(f"{url.host} answered {answer.status}: {text[:200]!r}")
                return text
        except (aiohttp.ClientError, TimeoutError, OSError) as fault:
            raise Retryable(f"{url.host}: {type(fault).__name__}: {fault}") from fault


class Settler(_Signed):
    """Asks the control plane where a tenant lives whose move was left alone. If its row still names the
    source and the source asks, it is claimed for the source under a fresh epoch first."""

    def __init__(self, control_url: str, *, cell: str, kid: str, secret: bytes, clock: Clock) -> None:
        super().__init__(cell=cell, kid=kid, secret=secret, clock=clock)
        self._url = control_url

    async def ask(self, *, tenant: uuid.UUID, move: uuid.UUID, side: MoveSide) -> Settled:
        """`Retryable` while nobody knows."""
        if not self._url:
            raise Retryable("CELL_CONTROL_URL is not set")
        body = {"tenant_id": ids.encode(ids.TENANT, tenant), "move_id": str(move), "side": side.value}
        text = await self.post(self._url, _SETTLE, msgspec.json.encode(body))
        try:
            return msgspec.json.decode(text, type=Settled)
        except msgspec.DecodeError as fault:
            raise Retryable(f"the control plane's answer: {fault}") from fault


class Peer(_Signed):
    """Hands ends of calls, and reports, on to the cell that a tenant moved to."""

    def __init__(self, *, cell: str, installation_key: bytes, clock: Clock) -> None:
        super().__init__(cell=cell, kid=CELLS_KID, secret=cells_key(installation_key), clock=clock)

    async def hand_on(self, url: str, move: uuid.UUID, completions: Sequence[Completion]) -> list[bool]:
        """Which took effect there. `Retryable` if they were not taken. Addresses are tried in turn."""
        body = msgspec.json.encode(list(completions))
        text = await self._post_any(url, f"/internal/moves/{move}/completions", body)
        try:
            return msgspec.json.decode(text, type=_Taken).applied
        except msgspec.DecodeError as fault:
            raise Retryable(str(fault)) from fault

    async def hand_report(self, away: Away, page: AwayPage) -> None:
        """A part of what is reported of a return. `Retryable` if it was not taken."""
        await self._post_any(away.url, f"/internal/moves/{away.move_id}/returned", msgspec.json.encode(page))

    async def _post_any(self, url: str, path: str, body: bytes) -> bytes:
        fault = Retryable("no address is known")
        for address in (part.strip() for part in url.split(",") if part.strip()):
            try:
                return await self.post(address, path, body)
            except Retryable as refused:
                fault = refused
        raise fault
