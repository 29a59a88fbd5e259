"""Real HTTP servers that stand where Django and the cells stand, and a real router process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from cells.contract import BadSignature, Caller, body_hash, verify_request
from deploy.ports import Reservation
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[4]
TENANT = "tnt_00000000000000000000000001"
OTHER_TENANT = "tnt_00000000000000000000000002"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def new_key(kind: str = "live") -> tuple[str, str]:
    """(id, whole text) of a fresh API key."""
    key_id = secrets.token_hex(8)
    return key_id, f"ch_{kind}_{key_id}_{secrets.token_hex(20)}"


@dataclass
class Call:
    """What a server received, with the caller its signature vouches for."""

    method: str
    target: str
    headers: Any
    body: bytes
    caller: Caller


class Listener:
    """An HTTP server that verifies signatures and hands every call to `answer`."""

    def __init__(self, kid: str) -> None:
        self.kid = kid
        self.secret = secrets.token_bytes(32)
        self.calls: list[Call] = []
        self.answer: Callable[[web.Request, Call], Awaitable[web.StreamResponse]] = self.echo
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen; on the same port again after `stop`."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        try:
            caller = verify_request(
                keys={self.kid: self.secret},
                now_ms=now_ms(),
                method=request.method,
                target=request.raw_path,
                headers=request.headers,
            )
        except BadSignature as bad:
            return web.json_response({"bad signature": str(bad)}, status=401)
        call = Call(request.method, request.raw_path, request.headers.copy(), body, caller)
        self.calls.append(call)
        return await self.answer(request, call)

    async def echo(self, request: web.Request, call: Call) -> web.StreamResponse:
        return web.json_response(
            {"server": self.kid, "target": call.target, "length": len(call.body), "actor": call.caller.actor}
        )


@dataclass
class Feed:
    """What the control plane knows; each change gets the next cursor."""

    cells: dict[str, Any] = field(default_factory=dict)
    tenants: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    oldest: int = 0

    def set(self, kind: str, name: str, value: Any) -> None:
        known = {"cell": self.cells, "tenant": self.tenants, "key": self.keys}[kind]
        if value is None:
            known.pop(name, None)
        else:
            known[name] = value
        self.log.append({"kind": kind, "id": name, "value": value})

    def snapshot(self) -> dict[str, Any]:
        return {
            "cursor": str(len(self.log)),
            "taken_at_ms": now_ms(),
            "cells": self.cells,
            "tenants": self.tenants,
            "keys": self.keys,
        }


class Django(Listener):
    """The control plane's internal endpoints."""

    def __init__(self) -> None:
        super().__init__("router")
        self.feed = Feed()
        self.records: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self.acts: dict[str, dict[str, Any]] = {}
        self.acts_status = 200
        self.verdict = "accepted"
        self.placed: set[str] = set()  # tenants whose records are taken whatever the verdict
        self.incarnations: dict[str, dict[str, Any]] = {}
        self.unreadable = ""  # a tenant whose records Django cannot read
        self.answer = self._route

    async def _route(self, request: web.Request, call: Call) -> web.StreamResponse:
        if not call.target.startswith("/internal/"):
            return await self.echo(request, call)
        assert call.caller.scopes == ("internal",)
        assert call.headers["X-Clockhouse-Content-SHA256"] == body_hash(call.body)
        if request.path == "/internal/routing/snapshot":
            return web.json_response(self.feed.snapshot())
        if request.path == "/internal/routing/changes":
            cursor = int(request.query["cursor"])
            if cursor < self.feed.oldest:
                return web.json_response({}, status=410)
            return web.json_response({"cursor": str(len(self.feed.log)), "changes": self.feed.log[cursor:]})
        if request.path == "/internal/routing/used":
            self.used |= json.loads(call.body)["keys"]
            return web.json_response({})
        if request.path == "/internal/operator-acts":
            self.acts |= {act["act_id"]: act for act in json.loads(call.body)["acts"]}
            return web.json_response({}, status=self.acts_status)
        assert request.path == "/internal/meters"
        sent = json.loads(call.body)
        self.incarnations |= {said["host"]: said for said in sent.get("incarnations", ())}
        records = sent["records"]
        if any(record["tenant_id"] == self.unreadable for record in records):
            return web.json_response({"detail": "a record is malformed"}, status=422)
        results = []
        for record in records:
            quantity = record.pop("quantity")
            self.records[json.dumps(record, sort_keys=True)] = quantity
            results.append("accepted" if record["tenant_id"] in self.placed else self.verdict)
        return web.json_response({"results": results})


class World:
    """A router process between Django, two cells and a Valkey."""

    def __init__(self, folder: Path, valkey_url: str) -> None:
        self.folder = folder
        self.valkey_url = valkey_url
        self.django = Django()
        self.cell = Listener("cell-a")
        self.other_cell = Listener("cell-b")
        self.process: asyncio.subprocess.Process | None = None
        self._reserved = Reservation()
        self.port = self._reserved.port
        self.settings: dict[str, str] = {}
        self.http: aiohttp.ClientSession = aiohttp.ClientSession(auto_decompress=False)
        self.key_id, self.key = new_key()

    async def start(self) -> None:
        for server in (self.django, self.cell, self.other_cell):
            await server.start()
        feed = self.django.feed
        for cell in (self.cell, self.other_cell):
            feed.set("cell", cell.kid, {"url": cell.url, "secret_hex": cell.secret.hex(), "state": "OPEN"})
        self.place(TENANT, self.cell.kid)
        self.place(OTHER_TENANT, self.other_cell.kid)
        self.add_key(self.key_id, self.key, tenant=TENANT)
        await self.start_router()

    def place(
        self, tenant: str, cell: str, *, epoch: int = 7, rate: int = 1000, state: str = "ACTIVE"
    ) -> None:
        self.django.feed.set(
            "tenant", tenant, {"cell": cell, "epoch": epoch, "state": state, "api_requests_per_second": rate}
        )

    def add_key(
        self,
        key_id: str,
        text: str,
        *,
        tenant: str | None,
        scopes: tuple[str, ...] = ("jobs:read", "jobs:write"),
        expires_at_ms: int | None = None,
    ) -> None:
        digest = hashlib.sha256(text.encode()).hexdigest()
        value = {"sha256": digest, "tenant_id": tenant, "scopes": scopes, "expires_at_ms": expires_at_ms}
        self.django.feed.set("key", key_id, value)

    async def start_router(self, *, ready: bool = True) -> None:
        """Start the process; on the same port again after it was stopped."""
        environment = {
            "PATH": os.environ["PATH"],
            "ROUTER_BIND": f"127.0.0.1:{self.port}",
            "ROUTER_FEED_URL": self.django.url,
            "ROUTER_KEY": self.django.secret.hex(),
            "ROUTER_DATA_DIR": str(self.folder / "router"),
            "ROUTER_VALKEY_URL": self.valkey_url,
            "ROUTER_POLL_SECONDS": "0.2",
            **self.settings,
        }
        with (self.folder / "router.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "controlplane.routing",
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
            )
        await eventually(self.ready if ready else self.alive, timeout=20)

    async def stop_router(self) -> int:
        """SIGTERM and the exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), 20)

    async def ready(self) -> bool:
        return await self._status("/readyz") == 200

    async def alive(self) -> bool:
        return await self._status("/healthz") == 200

    async def _status(self, path: str) -> int:
        assert self.process is not None
        assert self.process.returncode is None, self.log()
        try:
            async with self.http.get(self.url + path) as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> str:
        return (self.folder / "router.log").read_text()

    async def call(
        self,
        method: str,
        path: str,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> Answer:
        """A request with the tenant's key."""
        sent = {"Authorization": f"Bearer {self.key if key is None else key}", **(headers or {})}
        async with self.http.request(
            method, URL(self.url + path, encoded=True), headers=sent, **more
        ) as answer:
            return Answer(answer.status, answer.headers.copy(), await answer.read())

    async def stop(self) -> None:
        await self.http.close()
        if self.process is not None:
            await self.stop_router()
        for server in (self.django, self.cell, self.other_cell):
            await server.stop()
        self._reserved.release()


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)
