"""Calls to Django's internal API, signed with the router's key."""

from __future__ import annotations

from collections.abc import Callable

import aiohttp
from yarl import URL

from cells.contract import Caller, Scope, body_hash, sign_request

KID = "router"
_CALLER = Caller(actor="service:router", scopes=(Scope.INTERNAL.value,))
_TIMEOUT = aiohttp.ClientTimeout(total=5.0, sock_connect=1.0)

#: What a call raises when Django is away.
CALL_FAULTS = (aiohttp.ClientError, TimeoutError, OSError)


class ControlPlane:
    """Django as the router sees it."""

    def __init__(
        self, session: aiohttp.ClientSession, base_url: str, key: bytes, *, now_ms: Callable[[], int]
    ) -> None:
        self.base_url = base_url
        self.key = key
        self._session = session
        self._now_ms = now_ms

    async def get(self, target: str) -> tuple[int, bytes]:
        """Status and body. `target` is path and query exactly as they are sent."""
        return await self._call("GET", target, b"")

    async def post(self, target: str, body: bytes) -> tuple[int, bytes]:
        """Send JSON; status and body."""
        return await self._call("POST", target, body)

    async def _call(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        headers = sign_request(
            kid=KID,
            secret=self.key,
            now_ms=self._now_ms(),
            method=method,
            target=target,
            caller=_CALLER,
            body_sha256=body_hash(body),
        )
        if body:
            headers["Content-Type"] = "application/json"
        async with self._session.request(
            method,
            URL(self.base_url + target, encoded=True),
            data=body or None,
            headers=headers,
            timeout=_TIMEOUT,
            allow_redirects=False,
        ) as answer:
            return answer.status, await answer.read()
