"""Sending calls: httpx, once for ordinary code and once for asyncio. Everything that both must do
alike is in `wire.py` and `retrying.py`; this is the loop around them."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, TypeVar

import httpx

from controlplane.client.errors import ApiError, ClockhouseError, TimedOut, TransportError
from controlplane.client.profiles import Settings
from controlplane.client.retrying import Retries
from controlplane.client.wire import Answer, Call, outcome, user_agent

T = TypeVar("T")

#: Seconds until a connection stands; an address that does not answer is noticed soon.
_CONNECT_SECONDS = 5.0


class _Transport:
    """What both ways of sending share."""

    def __init__(self, settings: Settings, *, timeout: float, retries: Retries, product: str) -> None:
        self.settings = settings
        self.retries = retries
        self._timeout = timeout
        self._headers = {
            "Authorization": f"Bearer {settings.api_key}",
            "Accept": "application/json",
            "User-Agent": user_agent(product),
        }
        if settings.tenant_id is not None:
            self._headers["X-Tenant-Id"] = settings.tenant_id

    def _arguments(self, call: Call[Any]) -> dict[str, Any]:
        headers = self._headers | call.all_headers()
        content = call.content()
        if content is not None:
            headers["Content-Type"] = call.content_type
        limit = call.timeout or self._timeout
        return {
            "method": call.method,
            "url": self.settings.api_url + call.path,
            "params": call.query or None,
            "content": content,
            "headers": headers,
            "timeout": httpx.Timeout(limit, connect=min(limit, _CONNECT_SECONDS)),
        }

    def _pause(self, call: Call[Any], error: ClockhouseError, attempt: int, started: float) -> float | None:
        spent = time.monotonic() - started
        return self.retries.pause(call, error, attempt=attempt, spent=spent, rand=random.random())


def _answer(response: httpx.Response) -> Answer:
    headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
    return Answer(status=response.status_code, headers=headers, body=response.content)


def _away(error: httpx.TransportError, url: str) -> TransportError:
    connecting = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    what = str(error) or type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        return TimedOut(f"no answer from {url} in time ({type(error).__name__})", sent=not connecting)
    return TransportError(f"{url} cannot be reached: {what}", sent=not connecting)


class Transport(_Transport):
    """Sends calls from ordinary code."""

    def __init__(
        self,
        settings: Settings,
        *,
        timeout: float,
        retries: Retries,
        product: str = "client",
        http: httpx.Client | None = None,
    ) -> None:
        super().__init__(settings, timeout=timeout, retries=retries, product=product)
        self._http = http or httpx.Client()
        self._owned = http is None

    def send(self, call: Call[T]) -> T:
        """The answer's value. Raises `ApiError`, `TransportError` or `UnexpectedAnswer`."""
        call = call.with_key(str(uuid.uuid4()))
        started, attempt = time.monotonic(), 0
        while True:
            attempt += 1
            try:
                return self._once(call)
            except (ApiError, TransportError) as error:
                pause = self._pause(call, error, attempt, started)
                if pause is None:
                    raise
            time.sleep(pause)

    def _once(self, call: Call[T]) -> T:
        try:
            response = self._http.request(**self._arguments(call))
        except httpx.TransportError as error:
            raise _away(error, self.settings.api_url) from error
        return outcome(call, _answer(response), datetime.now(UTC))

    def fetch(self, call: Call[Any], to: BinaryIO, told: Callable[[int], None]) -> None:
        """Writes the answer's body into a file as it arrives, telling how many bytes each time; begins
        anew after a failure that may be repeated (and takes back what it told). Raises as `send` does."""
        started, attempt = time.monotonic(), 0
        while True:
            attempt += 1
            try:
                return self._fetch_once(call, to, told)
            except (ApiError, TransportError) as error:
                pause = self._pause(call, error, attempt, started)
                if pause is None:
                    raise
            told(-to.tell())
            to.seek(0)
            to.truncate()
            time.sleep(pause)

    def _fetch_once(self, call: Call[Any], to: BinaryIO, told: Callable[[int], None]) -> None:
        try:
            with self._http.stream(**self._arguments(call)) as response:
                if response.status_code >= 300:
                    response.read()
                    outcome(call, _answer(response), datetime.now(UTC))
                for chunk in response.iter_bytes():
                    to.write(chunk)
                    told(len(chunk))
        except httpx.TransportError as error:
            raise _away(error, self.settings.api_url) from error

    def close(self) -> None:
        """Give the connections back."""
        if self._owned:
            self._http.close()


class AsyncTransport(_Transport):
    """Sends calls from coroutines."""

    def __init__(
        self,
        settings: Settings,
        *,
        timeout: float,
        retries: Retries,
        product: str = "client",
        http: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__(settings, timeout=timeout, retries=retries, product=product)
        self._http = http or httpx.AsyncClient()
        self._owned = http is None

    async def send(self, call: Call[T]) -> T:
        """The answer's value. Raises `ApiError`, `TransportError` or `UnexpectedAnswer`."""
        call = call.with_key(str(uuid.uuid4()))
        started, attempt = time.monotonic(), 0
        while True:
            attempt += 1
            try:
                return await self._once(call)
            except (ApiError, TransportError) as error:
                pause = self._pause(call, error, attempt, started)
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    async def _once(self, call: Call[T]) -> T:
        try:
            response = await self._http.request(**self._arguments(call))
        except httpx.TransportError as error:
            raise _away(error, self.settings.api_url) from error
        return outcome(call, _answer(response), datetime.now(UTC))

    async def fetch(self, call: Call[Any], to: BinaryIO, told: Callable[[int], None]) -> None:
        """Writes the answer's body into a file as it arrives, telling how many bytes each time; begins
        anew after a failure that may be repeated (and takes back what it told). Raises as `send` does."""
        started, attempt = time.monotonic(), 0
        while True:
            attempt += 1
            try:
                return await self._fetch_once(call, to, told)
            except (ApiError, TransportError) as error:
                pause = self._pause(call, error, attempt, started)
                if pause is None:
                    raise
            told(-to.tell())
            to.seek(0)
            to.truncate()
            await asyncio.sleep(pause)

    async def _fetch_once(self, call: Call[Any], to: BinaryIO, told: Callable[[int], None]) -> None:
        try:
            async with self._http.stream(**self._arguments(call)) as response:
                if response.status_code >= 300:
                    await response.aread()
                    outcome(call, _answer(response), datetime.now(UTC))
                async for chunk in response.aiter_bytes():
                    to.write(chunk)
                    told(len(chunk))
        except httpx.TransportError as error:
            raise _away(error, self.settings.api_url) from error

    async def close(self) -> None:
        """Give the connections back."""
        if self._owned:
            await self._http.aclose()
