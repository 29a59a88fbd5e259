"""The API on a real store and a real queue, and a caller that signs as the router does."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
import redis.asyncio as redis
from fastapi import FastAPI

from cells.api import openapi, shapes
from cells.api.app import create_app
from cells.api.building import epoch_ms, member_of
from cells.api.services import Services
from cells.clock import SystemClock
from cells.config import Settings
from cells.contract import Caller, Scope, body_hash, sign_request
from cells.domain import ids
from cells.domain.run import Attempt, AttemptOutcome, RunState
from cells.execution.host_agent import HostAgent
from cells.execution.trial import Trial
from cells.observability.metrics import Metrics
from cells.ports import (
    Claim,
    Completion,
    Member,
    Queue,
    Store,
    TenantConfig,
    TenantPlacement,
)
from cells.secrets import SealedBox
from cells.store.postgres import PostgresStore
from cells.stores.elsewhere import elsewhere_of
from cells.stores.registry import Registry
from cells.timers.members import unpack
from cells.timers.queue import ValkeyQueue
from tests.waiting import eventually

CELL = "local-shared-1"
KEY = b"k" * 32
ALL = tuple(scope.value for scope in (Scope.ADMIN,))


class MovableClock(SystemClock):
    """The real clock, put ahead or back by a test."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def check_documented(app: FastAPI, method: str, path: str, answer: httpx.Response) -> None:
    """An answer has a status, and a body of a shape, that the OpenAPI document names for its route."""
    for template, operations in openapi.document(app)["paths"].items():
        pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template))
        if not re.fullmatch(pattern, path.partition("?")[0]) or method.lower() not in operations:
            continue
        if ":" not in template and ":" in path and "/runs/" not in path:
            continue
        # 421 is between router and cell.
        responses = operations[method.lower()]["responses"]
        assert str(answer.status_code) in responses or answer.status_code == 421, (
            method,
            template,
            answer.text,
        )
        if answer.status_code >= 400 or answer.status_code == 204:
            return
        documented = responses[str(answer.status_code)]["content"]
        if "application/json" not in documented:
            assert answer.headers["content-type"].partition(";")[0] in documented
            return
        content = documented["application/json"]
        shape: type[shapes.Shape] = getattr(shapes, content["schema"]["$ref"].rpartition("/")[2])
        found = answer.json()
        shape.model_validate_json(answer.content, strict=True)
        named = {field.alias or name for name, field in shape.model_fields.items()}
        assert found.keys() <= named, (method, template, found)
        return


@dataclass
class Api:
    """One tenant's (or somebody's) way to the API."""

    app: FastAPI
    http: httpx.AsyncClient
    clock: MovableClock
    tenant: uuid.UUID
    scopes: tuple[str, ...] = ALL
    actor: str = "key:test"
    epoch: int = 1

    @property
    def tenant_text(self) -> str:
        return ids.encode(ids.TENANT, self.tenant)

    def with_scopes(self, *scopes: Scope) -> Api:
        """The same tenant with other rights."""
        return Api(self.app, self.http, self.clock, self.tenant, tuple(s.value for s in scopes))

    def of(self, tenant: uuid.UUID) -> Api:
        """Another tenant."""
        return Api(self.app, self.http, self.clock, tenant)

    def signed(
        self, method: str, path: str, *, body: bytes = b"", hashed: bool = False, now_ms: int | None = None
    ) -> dict[str, str]:
        """Headers that vouch for a request."""
        return sign_request(
            kid=CELL,
            secret=KEY,
            now_ms=now_ms if now_ms is not None else self.clock.now_ms(),
            method=method,
            target=path,
            caller=Caller(tenant_id=self.tenant_text, actor=self.actor, scopes=self.scopes, epoch=self.epoch),
            **({"body_sha256": body_hash(body)} if hashed else {}),
        )

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        hashed: bool = False,
    ) -> httpx.Response:
        """A signed request; a body that is no bytes is sent as JSON."""
        content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        answer = await self.http.request(
            method,
            path,
            content=content,
            headers=self.signed(method, path, body=content, hashed=hashed) | (headers or {}),
        )
        check_documented(self.app, method, path, answer)
        return answer

    async def get(self, path: str, status: int = 200) -> Any:
        """Read; the status is asserted."""
        return await self.ok("GET", path, status=status)

    async def ok(self, method: str, path: str, body: Any = None, *, status: int = 200, **more: Any) -> Any:
        """Send; the status is asserted, the JSON returned."""
        answer = await self.send(method, path, body, **more)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer.json() if answer.content else None

    async def problem(
        self, method: str, path: str, body: Any = None, *, status: int, code: str, **more: Any
    ) -> Any:
        """Send; the answer must be that problem."""
        answer = await self.send(method, path, body, **more)
        assert (answer.status_code, answer.json().get("code")) == (status, code), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        document = answer.json()
        assert document["status"] == status
        assert document["type"].startswith("urn:clockhouse:problem:")
        assert document["title"]
        assert document["detail"]
        return document

    async def target(self, base_url: str = "https://email.internal/v1", **fields: Any) -> Any:
        """A registered and approved target."""
        made = await self.ok("POST", "/v1/targets", {"base_url": base_url, **fields}, status=201)
        await self.ok("POST", f"/v1/targets/{made['target_id']}:approve")
        return made

    async def job(self, target_id: str, **fields: Any) -> Any:
        """A job on that target."""
        body = {"schedule": {"type": "RATE", "every_seconds": 3600}, "target": {"target_id": target_id}}
        return await self.ok("POST", "/v1/jobs", body | fields, status=201)


@dataclass
class Cell:
    """The API with what is behind it."""

    api: Api
    store: PostgresStore
    queue: ValkeyQueue
    clock: MovableClock
    metrics: Metrics
    host: HostAgent
    box: SealedBox
    database_url: str
    valkey_url: str
    made: list[uuid.UUID] = field(default_factory=list)

    @property
    def services(self) -> Services:
        services: Services = self.api.app.state.services
        return services

    async def place(self, tenant: uuid.UUID, *, state: str = "ACTIVE", epoch: int = 1, **config: Any) -> None:
        """Place a tenant here."""
        self.made.append(tenant)
        applied = await self.store.put_tenant(
            TenantPlacement(
                tenant_id=tenant,
                state=state,
                ownership_epoch=epoch,
                config_version=len(self.made),
                config=TenantConfig(**config),
            )
        )
        assert applied
        self.services.placements.forget(tenant)

    async def timers(self, job_id: str) -> dict[int, int]:
        """What the queue's buckets hold of a job: due (epoch ms) by generation."""
        await self.services.feed.flush()
        parent = ids.decode(ids.JOB, job_id)
        assert parent is not None
        found: dict[int, int] = {}
        client: redis.Redis = redis.Redis.from_url(self.valkey_url)
        async with client:
            pattern = f"{self.queue.keys.prefix}b:*:{ids.shard_of(parent)}:*"
            async for key in client.scan_iter(match=pattern):
                for packed, due_ms in await client.zrange(key, 0, -1, withscores=True):
                    member = unpack(packed, due_ms=int(due_ms))
                    if member.parent_id == parent:
                        found[member.generation] = member.due_ms
        return found

    async def claim(self, job_id: str) -> Sequence[Claim]:
        """Claim a job's next occurrence, as an executor would."""
        parent = ids.decode(ids.JOB, job_id)
        assert parent is not None
        row = await self.store.get_job(self.api.tenant, parent)
        assert row is not None
        member = member_of(row, row.tenant_id, version=row.version)
        assert member is not None
        return await self.claim_members([member])

    async def claimable(self, job_id: str) -> None:
        """Return when a job is due by the database's clock."""
        parent = ids.decode(ids.JOB, job_id)
        assert parent is not None
        row = await self.store.get_job(self.api.tenant, parent)
        assert row is not None
        assert row.due_at is not None
        due_at = row.due_at

        async def due() -> bool:
            return (await self.store.status()).database_time > due_at

        await eventually(due)

    async def claim_members(self, members: Sequence[Member]) -> Sequence[Claim]:
        """Claim what these members name."""
        result = await self.store.claim(members, host_id=self.host.host_id, host_name=self.host.name)
        return result.claims

    async def complete(self, claim: Claim, state: RunState, **more: Any) -> None:
        """End an attempt, as an executor would."""
        now = datetime.now(UTC)
        text = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        ok = state is RunState.SUCCEEDED
        attempt = Attempt(
            number=claim.attempt,
            epoch=claim.epoch,
            outcome=AttemptOutcome.SUCCEEDED if ok else AttemptOutcome.TERMINAL,
            claimed_at=text,
            started_at=text,
            finished_at=text,
            host=self.host.name,
            status=200 if ok else 404,
            error=None if ok else "not found",
            body="what the target said",
        )
        ended = Completion(
            tenant_id=claim.tenant_id,
            key=claim.key,
            epoch=claim.epoch,
            state=state,
            attempt=attempt,
            target_id=claim.definition.target.target_id,
            started_ms=epoch_ms(now),
            finished_ms=epoch_ms(now),
            first_attempt_lag_ms=3,
            priority=claim.priority,
            shard=claim.shard,
            **more,
        )
        applied = await self.store.complete([ended], host_id=self.host.host_id)
        assert list(applied.applied) == [True]

    def for_tenant(self) -> Cell:
        """The same cell, for a tenant that is yet to be placed."""
        return replace(self, api=self.api.of(uuid.uuid4()))

    @asynccontextmanager
    async def near(self) -> AsyncIterator[Api]:
        """The same API where targets on this machine may be called."""
        near = replace(settings(), egress_allow=frozenset({"loopback"}))
        app = _app(self, self.store, self.queue, near)
        yield Api(app, _client(app), self.clock, self.api.tenant)
        await app.state.services.trial.close()

    def with_engines(
        self, *, store: Store | None = None, queue: Queue | None = None, leased: bool = False
    ) -> Api:
        """The same API over a wrapped store or queue."""
        app = _app(self, store or self.store, queue or self.queue, replace(settings(), leased=leased))
        return Api(app, _client(app), self.clock, self.api.tenant)


def settings(database_url: str = "", valkey_url: str = "") -> Settings:
    """Settings of the tests' cell."""
    return Settings(
        cell_name=CELL,
        region="local",
        database_url=database_url,
        valkey_url=valkey_url,
        bind_host="127.0.0.1",
        bind_port=0,
        keys={CELL: KEY},
        installation_keys=(b"i" * 32,),
    )


def _client(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://cell")


def _app(cell: Cell, store: Store, queue: Queue, given: Settings | None = None) -> FastAPI:
    given = given or settings()
    return create_app(
        store=store,
        queue=queue,
        secrets=cell.box,
        settings=given,
        clock=cell.clock,
        metrics=Metrics(),
        host=cell.host,
        trial=Trial(cell.box, cell.clock, egress_allow=given.egress_allow),
    )


@asynccontextmanager
async def cell(database_url: str, valkey_url: str, *, stores: Registry | None = None) -> AsyncIterator[Cell]:
    """A cell with one tenant, whose host lease is held. `stores`: which of its stores this is, and others."""
    clock, metrics = MovableClock(), Metrics()
    box = SealedBox([b"i" * 32])
    stores = Registry() if stores is None else stores
    given = replace(settings(database_url, valkey_url), stores=stores)
    async with PostgresStore(database_url, cell_name=CELL, pool_size=6, number=stores.own) as store:
        await store.ensure_partitions(days_ahead=2)
        host = HostAgent(store, SystemClock(), metrics, roles=("api", "engine"))
        stop = asyncio.Event()
        holding = asyncio.create_task(host.run(stop))
        await host.wait_live()
        queue = ValkeyQueue(valkey_url, cell=f"api-{os.getpid()}-{uuid.uuid4().hex[:8]}", clock=clock)
        elsewhere = elsewhere_of(given, store, host, clock, metrics)
        app = create_app(
            store=store,
            queue=queue,
            secrets=box,
            settings=given,
            clock=clock,
            metrics=metrics,
            host=host,
            trial=Trial(box, clock, egress_allow=()),
            elsewhere=elsewhere,
            local=store,
        )
        async with _client(app) as http:
            tenant = uuid.uuid4()
            api = Api(app, http, clock, tenant)
            made = Cell(api, store, queue, clock, metrics, host, box, database_url, valkey_url)
            await made.place(tenant)
            yield made
            await made.services.feed.flush()
            await made.services.trial.close()  # type: ignore[attr-defined]
        if elsewhere is not None:
            await elsewhere.close()
        await queue.close()
        stop.set()
        await holding
