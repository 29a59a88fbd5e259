"""Task queues as the API describes them, in a small real server: leases, epochs, heartbeats.

A poll waits for a task; a claim raises the epoch; heartbeats and completions count under the newest
epoch only; a released or run-out claim can be had again at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web


@dataclass
class Entry:
    """A task and what happened to it."""

    run_id: str
    payload: Any
    type: str | None = None
    epoch: int = 0
    state: str = "READY"
    lease_until: float = 0.0
    cancel_requested: bool = False
    progress: list[Any] = field(default_factory=list)
    heartbeats: int = 0
    result: Any = None
    error: str | None = None
    retryable: bool | None = None


@dataclass
class QueueServer:
    """`lease_seconds` and `every_seconds` are what polls promise. `away`: heartbeats get no answer."""

    lease_seconds: float = 3.0
    every_seconds: float = 0.1
    entries: dict[str, Entry] = field(default_factory=dict)
    refusals: list[tuple[str, str]] = field(default_factory=list)
    polls: list[dict[str, Any]] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    away: bool = False
    failing_completions: int = 0
    url: str = ""
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def put(self, run_id: str, payload: Any = None, type: str | None = None) -> Entry:  # noqa: A002
        entry = self.entries[run_id] = Entry(run_id=run_id, payload=payload, type=type)
        async with self._news:
            self._news.notify_all()
        return entry

    async def reclaim(self, entry: Entry) -> int:
        """What another worker's claim does."""
        entry.epoch += 1
        entry.state = "RUNNING"
        entry.lease_until = time.monotonic() + 60
        return entry.epoch

    # --- the API -----------------------------------------------------------------------------
    async def _poll(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.polls.append(asked)
        deadline = time.monotonic() + asked["wait_seconds"]
        async with self._news:
            while not (ready := self._ready(asked["max_tasks"])):
                left = deadline - time.monotonic()
                if left <= 0:
                    return web.json_response({"tasks": []})
                try:
                    await asyncio.wait_for(self._news.wait(), left)
                except TimeoutError:
                    continue
        return web.json_response({"tasks": [self._claim(entry) for entry in ready]})

    def _ready(self, most: int) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.state == "READY"][:most]

    def _claim(self, entry: Entry) -> dict[str, Any]:
        entry.epoch += 1
        entry.state = "RUNNING"
        claim = {
            "run_id": entry.run_id,
            "epoch": entry.epoch,
            "lease_expires_at": self._renew(entry),
            "heartbeat_every_seconds": self.every_seconds,
            "payload": entry.payload,
            "idempotency_key": entry.run_id,
        }
        return claim | ({"activity_type": entry.type} if entry.type else {})

    def _renew(self, entry: Entry) -> str:
        entry.lease_until = time.monotonic() + self.lease_seconds
        # The Date header has whole seconds; the lease is counted from it.
        base = datetime.now(UTC).replace(microsecond=0)
        return (base + timedelta(seconds=self.lease_seconds)).isoformat()

    async def _leave(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.left.append((request.match_info["queue"], asked["worker_id"]))
        return web.json_response({"returned": 0})

    async def _act(self, request: web.Request) -> web.Response:
        run_id, _, verb = request.match_info["name"].rpartition(":")
        asked = await request.json()
        entry = self.entries[run_id]
        if verb == "heartbeat" and self.away:
            assert request.transport is not None
            request.transport.abort()
            raise ConnectionResetError
        if verb == "complete" and self.failing_completions:
            self.failing_completions -= 1
            return web.json_response({"code": "UNAVAILABLE"}, status=503)
        if asked["epoch"] != entry.epoch or entry.state != "RUNNING":
            self.refusals.append((run_id, verb))
            return web.json_response({"reason": "EPOCH_SUPERSEDED"}, status=409)
        match verb:
            case "heartbeat":
                entry.heartbeats += 1
                if "progress" in asked:
                    entry.progress.append(asked["progress"])
                return web.json_response(
                    {"lease_expires_at": self._renew(entry), "cancel_requested": entry.cancel_requested}
                )
            case "complete":
                entry.state = asked["outcome"]
                entry.result, entry.error = asked.get("result"), asked.get("error")
                entry.retryable = asked.get("retryable")
            case "release":
                entry.state = "READY"
        return web.json_response({})


@asynccontextmanager
async def serving(server: QueueServer) -> AsyncIterator[QueueServer]:
    """The server on a free port of this machine."""
    app = web.Application()
    app.router.add_post("/v1/task-queues/{queue}/tasks:poll", server._poll)
    app.router.add_post("/v1/task-queues/{queue}/workers:leave", server._leave)
    app.router.add_post("/v1/runs/{name}", server._act)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
