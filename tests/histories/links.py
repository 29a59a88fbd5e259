"""One proxy for each directed link between machines: cut, held, or slow in either direction."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

from deploy.ports import LOOPBACK


class Link:
    """The way from one machine to a port of another. What the one opens goes through it, both ways."""

    def __init__(self, name: str, to: int) -> None:
        self.name = name
        self.port = 0
        self._to = to
        self._cut = False
        self._flows = asyncio.Event()
        self._flows.set()
        self._delays = {True: 0.0, False: 0.0}  # outward, and back (seconds)
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        server = await asyncio.start_server(self._pass, LOOPBACK, 0)
        self.port = server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """What flows is reset, what comes is refused."""
        self._cut = True
        for writer in tuple(self._open):
            writer.transport.abort()

    async def hold(self) -> None:
        """Nothing passes, and nobody is told."""
        self._flows.clear()

    async def slow(self, outward: float, back: float) -> None:
        """What passes takes so long, each way by itself (seconds)."""
        self._delays = {True: outward, False: back}

    async def mend(self) -> None:
        """As it should be."""
        self._cut = False
        self._delays = {True: 0.0, False: 0.0}
        self._flows.set()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        self._open.add(writer)
        try:
            there_reader, there = await asyncio.open_connection(LOOPBACK, self._to)
            self._open.add(there)
            try:
                await asyncio.gather(
                    self._copy(reader, there, outward=True), self._copy(there_reader, writer, outward=False)
                )
            finally:
                self._open.discard(there)
                there.transport.abort()
        except OSError:
            return
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, outward: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(64 * 1024):
                if self._delays[outward]:
                    await asyncio.sleep(self._delays[outward])
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


class Links:
    """All of them, in a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._links: dict[tuple[str, str], Link] = {}

    def __enter__(self) -> Links:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for link in self._links.values():
            self._do(link.cut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def add(self, source: str, target: str, port: int) -> int:
        """The port at which `source` finds that port of `target`."""
        link = Link(f"{source}→{target}", port)
        self._do(link.listen())
        self._links[source, target] = link
        return link.port

    def cut(self, source: str, target: str) -> None:
        self._do(self._links[source, target].cut())

    def hold(self, source: str, target: str) -> None:
        self._do(self._links[source, target].hold())

    def slow(self, source: str, target: str, outward: float, back: float) -> None:
        self._do(self._links[source, target].slow(outward, back))

    def mend(self, source: str, target: str) -> None:
        self._do(self._links[source, target].mend())

    def mend_all(self) -> None:
        for source, target in self._links:
            self.mend(source, target)

    def of(self, machine: str) -> list[tuple[str, str]]:
        """All links that begin or end at a machine."""
        return [pair for pair in self._links if machine in pair]

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(10)
