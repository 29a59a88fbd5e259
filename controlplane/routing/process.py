"""The router's process: builds the parts, serves, drains on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

import aiohttp
from granian.constants import Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from cells.observability.traces import traces_from
from controlplane.routing.acts import OperatorActs
from controlplane.routing.app import Router
from controlplane.routing.control import ControlPlane
from controlplane.routing.disk import occupy
from controlplane.routing.feed import Feed
from controlplane.routing.forward import ANSWER_S, Forwarder
from controlplane.routing.limits import Limiter
from controlplane.routing.meter import Meter
from controlplane.routing.metrics import Metrics
from controlplane.routing.pulse import Pulse
from controlplane.routing.settings import Settings
from controlplane.routing.spans import Spans
from controlplane.routing.upstream import KEEP_ALIVE_S, LARGEST_HEAD, Upstream
from controlplane.routing.used import LastUsed

log = logging.getLogger(__name__)


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


async def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT, then finish what is under way."""
    async with AsyncExitStack() as stack:
        stack.enter_context(occupy(settings.data_dir))
        session = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        )
        upstream = Upstream(silence_s=ANSWER_S)
        stack.push_async_callback(upstream.close)
        control = ControlPlane(session, settings.feed_url, settings.key, now_ms=now_ms)
        feed = Feed(control, settings.data_dir, now_ms=now_ms)
        limiter = Limiter(settings.valkey_url, now_ms=now_ms)
        stack.push_async_callback(limiter.close)
        host = f"router-{os.urandom(8).hex()}"
        meter = Meter(settings.data_dir, host=host, now_ms=now_ms)
        acts = OperatorActs(settings.data_dir, host=host, now_ms=now_ms)
        used = LastUsed()
        pulse = Pulse(session)
        stack.push_async_callback(pulse.close)
        metrics = Metrics()
        traces = traces_from(os.environ, service="clockhouse-router")
        if traces is not None:
            stack.push_async_callback(traces.close)
        router = Router(
            feed=feed,
            limiter=limiter,
            forwarder=Forwarder(upstream, feed, control, metrics, pulse, now_ms=now_ms),
            meter=meter,
            used=used,
            acts=acts,
            metrics=metrics,
            spans=None if traces is None else Spans(traces, now_ms=now_ms),
            max_stale_s=settings.max_stale_s,
            now_ms=now_ms,
        )
        if feed.load_copy():
            log.info("started from the copy on disk, %s ms old", feed.age_ms)
        await _run(settings, router, feed, [meter, used, acts], control)


async def _run(
    settings: Settings,
    router: Router,
    feed: Feed,
    tellers: Sequence[Meter | LastUsed | OperatorActs],
    control: ControlPlane,
) -> None:
    server = Server(
        router,
        address=settings.host,
        port=settings.port,
        interface=Interfaces.ASGINL,
        websockets=False,
        backlog=1024,
        # A larger head is answered 431.
        http1_settings=HTTP1Settings(max_buffer_size=LARGEST_HEAD),
        log_enabled=False,
    )
    asked, stop = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, asked.set)
    serving = asyncio.create_task(server.serve(), name="server")
    work = [
        asyncio.create_task(feed.run(stop, every_s=settings.poll_s), name="feed"),
        *(asyncio.create_task(each.run(stop, control), name=type(each).__name__) for each in tellers),
    ]
    waiting = asyncio.create_task(asked.wait(), name="signal")
    log.info("router listens on %s:%s", settings.host, settings.port)
    done, _ = await asyncio.wait([serving, waiting, *work], return_when=asyncio.FIRST_COMPLETED)
    router.draining = True
    server.stop()  # type: ignore[no-untyped-call]
    _, late = await asyncio.wait([serving], timeout=settings.drain_s)
    stop.set()
    await asyncio.gather(*work)
    waiting.cancel()
    if late:
        log.warning("requests were still under way after %s s", settings.drain_s)
        serving.cancel()
    for task in done - {waiting}:
        task.result()  # a part ended by itself: its error ends the process
    log.info("router stopped")
