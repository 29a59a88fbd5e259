"""Requests to the API in front of a local store, signed as one process of the installation to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from yarl import URL

from cells.contract import CELLS_KID, Caller, body_hash, cells_key, sign_request
from cells.ports import Clock, Retryable
from cells.stores.registry import LocalStore

#: How long a connection may take, and an answer: longer than the longest poll (seconds).
CONNECT_SECONDS, ANSWER_SECONDS = 2.0, 40.0
#: The server closes what is idle after 5 s; what is kept longer here would be found closed (seconds).
_KEEP_SECONDS = 3.0


class Unreachable(Exception):
    """Nothing answers in front of a local store. `store` says which."""

    def __init__(self, store: LocalStore, fault: str):
        super().__init__(f"store {store.number} in {store.region}: {fault}")
        self.store = store


class Refused(Retryable):
    """A local store answers, and does not take what it is told of one tenant. It may do so later."""

    def __init__(self, store: LocalStore, fault: str):
        super().__init__(f"store {store.number} in {store.region} refuses: {fault}")
        self.store = store


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What a local store's API answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Link:
    """One process's way to all local stores."""

    def __init__(self, *, installation_key: bytes, clock: Clock) -> None:
        self._secret, self._clock = cells_key(installation_key), clock
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self,
        store: LocalStore,
        method: str,
        target: str,
        caller: Caller,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Reply:
        """The answer, whatever it says; `Unreachable` where there is none. `target` is path and query as they
        are sent."""
        url = URL(store.url.rstrip("/") + target, encoded=True)
        signed = sign_request(
            kid=CELLS_KID,
            secret=self._secret,
            now_ms=self._clock.now_ms(),
            method=method,
            target=url.raw_path_qs,
            caller=caller,
            body_sha256=body_hash(body),
        )
        try:
            async with self._opened().request(
                method, url, data=body, headers={**(headers or {}), **signed}, allow_redirects=False
            ) as answer:
                return Reply(status=answer.status, headers=answer.headers, body=await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as fault:
            raise Unreachable(store, f"{type(fault).__name__} {fault}"[:200]) from fault

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=200, keepalive_timeout=_KEEP_SECONDS),
                timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Content-Type", "User-Agent"),
            )
        return self._session

    async def close(self) -> None:
        """Let go of the connections."""
        if self._session is not None:
            await self._session.close()
