"""A TCP proxy whose network can be cut: what flows is reset, what comes is refused."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType

from deploy.ports import LOOPBACK


class Cuttable:
    """Passes bytes on to a port until `cut`, and again after `mend`. Runs in a thread of its own."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cuttable", daemon=True)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def __enter__(self) -> Cuttable:
        self._thread.start()
        self.mend()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def cut(self) -> None:
        """Nothing passes any more; connections break in the middle of whatever they carry."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(10)

    def mend(self) -> None:
        """Everything passes again, on the same port."""
        asyncio.run_coroutine_threadsafe(self._mend(), self._loop).result(10)

    async def _mend(self) -> None:
        self._server = await asyncio.start_server(self._pass, LOOPBACK, self.port, reuse_address=True)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            there_reader, there = await asyncio.open_connection(LOOPBACK, self._to)
            self._open.add(there)
            try:
                await asyncio.gather(_copy(reader, there), _copy(there_reader, writer))
            finally:
                self._open.discard(there)
                there.transport.abort()
        except OSError:
            return
        finally:
            self._open.discard(writer)
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(64 * 1024):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
