"""What hangs holds no request up; what is merely slow is waited for."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator

import aiohttp
import psutil
import pytest
from aiohttp import web

from controlplane.routing import pulse as pulses
from controlplane.routing.pulse import Pulse, Silent
from deploy.ports import Reservation
from tests.component.controlplane.routing.surroundings import TENANT, World
from tests.waiting import eventually

_SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(204)
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_POST = do_GET
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
async def host() -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """A process that answers, and can be suspended."""
    reserved = Reservation()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _SERVER, str(reserved.port))

    async def up() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", reserved.port)
        except OSError:
            return False
        writer.close()
        return True

    await eventually(up)
    yield f"http://127.0.0.1:{reserved.port}", process
    process.kill()
    await process.wait()
    reserved.release()


async def suspend(process: asyncio.subprocess.Process) -> None:
    """And wait until it is: its other threads go on until the first one has heard of it."""
    process.send_signal(signal.SIGSTOP)
    await eventually(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)


async def test_a_suspended_host_is_answered_for_and_taken_back(
    world: World, host: tuple[str, asyncio.subprocess.Process]
) -> None:
    url, process = host
    world.django.feed.set("cell", "cell-h", {"url": url, "secret_hex": "ab" * 32, "state": "OPEN"})
    world.place(TENANT, "cell-h")

    async def answered() -> bool:
        return (await world.call("GET", "/v1/jobs")).status == 204

    await eventually(answered)
    await suspend(process)
    first = [world.call("GET", "/v1/jobs"), world.call("POST", "/v1/task-queues/q/tasks:poll", data=b"{}")]
    read, sent = await asyncio.wait_for(asyncio.gather(*first), 40)
    assert (read.status, read.headers["Retry-After"]) == (503, "2")
    # What may have been done is not asked for again by every program that knows Retry-After.
    assert (sent.status, "Retry-After" in sent.headers) == (504, False)
    assert "unknown whether the request took effect" in sent.json["detail"]
    again = await world.call("POST", "/v1/jobs", data=b"{}")
    assert (again.status, "Nothing was sent" in again.json["detail"]) == (503, True)
    process.send_signal(signal.SIGCONT)
    await eventually(answered, timeout=20)


async def test_another_address_takes_what_may_be_repeated(
    world: World, host: tuple[str, asyncio.subprocess.Process]
) -> None:
    url, _ = host
    with socket.create_server(("127.0.0.1", 0)) as hung:
        both = f"http://127.0.0.1:{hung.getsockname()[1]},{url}"
        world.django.feed.set("cell", "cell-h", {"url": both, "secret_hex": "ab" * 32, "state": "OPEN"})
        world.place(TENANT, "cell-h")

        async def answered() -> bool:
            return (await world.call("GET", "/v1/jobs")).status == 204

        await eventually(answered, timeout=30)
        for _ in range(4):  # whose turn it is makes no difference
            assert (await asyncio.wait_for(world.call("GET", "/v1/jobs"), 40)).status == 204
        for _ in range(4):  # the silent one is known by now, and asked for nothing
            assert (await world.call("POST", "/v1/jobs", data=b"{}")).status == 204


async def test_what_answers_questions_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulses, "PATIENCE_S", 0.01)
    monkeypatch.setattr(pulses, "_AGAIN_S", 0.01)
    asked = 0
    enough = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        if request.path == "/healthz":
            asked += 1
            if asked == 5:
                enough.set()
        else:
            await enough.wait()
        return web.Response(text="at last")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with aiohttp.ClientSession() as session:
        pulse = Pulse(session)
        async with pulse.awaited(url):
            response = await session.get(url + "/long")
        assert await response.text() == "at last"
        assert pulse.silent == frozenset()
        await pulse.close()
    await runner.cleanup()


async def test_a_timeout_of_its_own_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulses, "PATIENCE_S", 0.01)
    monkeypatch.setattr(pulses, "_QUESTION_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as hung:
        url = f"http://127.0.0.1:{hung.getsockname()[1]}"
        async with aiohttp.ClientSession() as session:
            pulse = Pulse(session)
            with pytest.raises(TimeoutError):
                async with pulse.awaited(url):
                    raise TimeoutError
            with pytest.raises(Silent):
                async with pulse.awaited(url):
                    await session.get(url + "/x")
            assert pulse.silent == {url}
            await pulse.close()
