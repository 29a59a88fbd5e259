"""What the store's tests start from, and short ways to do what a host does."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg

from cells.domain.ids import fresh_id, shard_of
from cells.domain.job import JobDefinition, JobState, Priority, Schedule, ScheduleType, TargetRef
from cells.domain.run import Attempt, AttemptOutcome, RunState
from cells.ports import (
    Claim,
    ClaimResult,
    Completion,
    Created,
    Fence,
    JobRow,
    JournalBody,
    Member,
    NewJob,
    RunRow,
    SealedSecret,
    TargetRow,
    TenantConfig,
    TenantPlacement,
)
from cells.store.postgres import PostgresStore

EPOCH = 3
TARGET = "tgt_reports"
_ids = itertools.count(1)


def new_id() -> uuid.UUID:
    return fresh_id(now_ms=1_764_000_000_000 + next(_ids), entropy=uuid.uuid4().bytes[:10])


def now() -> datetime:
    return datetime.now(UTC)


def seconds_ago(n: float) -> datetime:
    return (now() - timedelta(seconds=n)).replace(microsecond=0)


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def definition(**changes: Any) -> JobDefinition:
    fields: dict[str, Any] = {
        "schedule": Schedule(type=ScheduleType.NOW),
        "target": TargetRef(target_id=TARGET, path="/run", timeout_seconds=30),
        "dispatch_window_seconds": 300,
    }
    return JobDefinition(**(fields | changes))


def once(at: datetime, **changes: Any) -> JobDefinition:
    return definition(schedule=Schedule(type=ScheduleType.ONCE, run_at=at.isoformat()), **changes)


def new_job(at: datetime | None, definition_: JobDefinition | None = None, **changes: Any) -> NewJob:
    job_id = changes.pop("job_id", None) or new_id()
    offset_ms = changes.get("offset_ms", 0)
    fields: dict[str, Any] = {
        "job_id": job_id,
        "definition": definition_ or every(3600, at or now()),
        "payload": b'{"n":1}',
        "shard": shard_of(job_id),
        "window_ms": 300_000,
        "offset_ms": offset_ms,
        "next_run_at": at,
        "due_at": None if at is None else at + timedelta(milliseconds=offset_ms),
        "state": JobState.DONE if at is None else JobState.ACTIVE,
        "actor": "key:test",
    }
    return NewJob(**(fields | changes))


def every(seconds: int, start: datetime, **changes: Any) -> JobDefinition:
    schedule = Schedule(type=ScheduleType.RATE, every_seconds=seconds, start_at=start.isoformat())
    return definition(schedule=schedule, **changes)


def member_of(job: NewJob, tenant: uuid.UUID, *, version: int = 1) -> Member:
    assert job.next_run_at is not None
    assert job.due_at is not None
    return Member(
        tenant_id=tenant,
        parent_id=job.job_id,
        scheduled_for=int(job.next_run_at.timestamp()),
        generation=version,
        priority=int(job.definition.priority),
        due_ms=ms(job.due_at),
        shard=job.shard,
        released_ms=ms(now()),
    )


def completion(claim: Claim, state: RunState, **changes: Any) -> Completion:
    at = f"{now():%Y-%m-%dT%H:%M:%S.000Z}"
    outcome = {
        RunState.SUCCEEDED: AttemptOutcome.SUCCEEDED,
        RunState.RETRY_WAIT: AttemptOutcome.RETRYABLE,
    }.get(state, AttemptOutcome.TERMINAL)
    attempt = Attempt(
        number=claim.attempt,
        epoch=claim.epoch,
        outcome=outcome,
        claimed_at=at,
        finished_at=at,
        status=changes.pop("status", 200 if state is RunState.SUCCEEDED else 500),
        error=changes.pop("error", None),
    )
    fields: dict[str, Any] = {
        "tenant_id": claim.tenant_id,
        "key": claim.key,
        "epoch": claim.epoch,
        "state": state,
        "attempt": attempt,
        "target_id": claim.definition.target.target_id,
        "started_ms": claim.claimed_ms,
        "finished_ms": ms(now()),
        "timer_at": now() if state is RunState.RETRY_WAIT else None,
        "priority": claim.priority,
        "shard": claim.shard,
    }
    return Completion(**(fields | changes))


def target(tenant: uuid.UUID, target_id: str = TARGET, **changes: Any) -> TargetRow:
    fields: dict[str, Any] = {
        "tenant_id": tenant,
        "target_id": target_id,
        "state": "APPROVED",
        "version": 1,
        "base_url": "https://reports.example",
        "owner_team": None,
        "description": None,
        "max_concurrency": 100,
        "initial_concurrency": 10,
        "latency_slo_ms": 2000,
        "auth": {"type": "HMAC_SHA256"},
        "settings": {},
        "created_by": "user:1",
        "created_at": now(),
        "updated_at": now(),
        "approved_by": "user:2",
        "approved_at": now(),
    }
    return TargetRow(**(fields | changes))


def secret(generation: int = 1, purpose: str = "SIGNING") -> SealedSecret:
    return SealedSecret(
        generation=generation, purpose=purpose, sealed=b"sealed", created_at=now(), expires_at=None
    )


@dataclass(kw_only=True)
class World:
    """A store with tenants `a` and `b`, both ACTIVE under EPOCH, and one live host."""

    store: PostgresStore
    sql: psycopg.AsyncConnection[Any]
    a: Fence
    b: Fence
    host_id: int
    host_name: str = "host-1"
    jobs: list[NewJob] = field(default_factory=list)

    async def create(self, *jobs: NewJob, fence: Fence | None = None) -> None:
        fences = [fence or self.a] * len(jobs)
        results = await self.store.create_jobs(fences, jobs, host_id=self.host_id)
        assert results == [Created(created=True, status=201, answer=None)] * len(jobs)

    async def claim(self, *members: Member, host_id: int | None = None) -> ClaimResult:
        return await self.store.claim(members, host_id=host_id or self.host_id, host_name=self.host_name)

    async def claimed(self, job: NewJob, fence: Fence | None = None) -> Claim:
        """Create a due job and claim it."""
        await self.create(job, fence=fence)
        result = await self.claim(member_of(job, (fence or self.a).tenant_id))
        (claim,) = result.claims
        return claim

    async def job(self, job: NewJob, fence: Fence | None = None) -> JobRow:
        row = await self.store.get_job((fence or self.a).tenant_id, job.job_id)
        assert row is not None
        return row

    async def run(self, claim: Claim) -> RunRow:
        row = await self.store.get_run(claim.tenant_id, claim.key)
        assert row is not None
        return row

    async def complete(self, claim: Claim, state: RunState, **changes: Any) -> bool:
        applied = await self.store.complete([completion(claim, state, **changes)], host_id=self.host_id)
        (one,) = applied.applied
        return one

    async def set_state(
        self, job: NewJob, state: JobState, at: datetime | None = None, **changes: Any
    ) -> JobRow:
        arguments: dict[str, Any] = {"base_version": None, "actor": "key:test", "host_id": self.host_id}
        return await self.store.set_job_state(
            self.a, job_id=job.job_id, state=state, next_run_at=at, due_at=at, **(arguments | changes)
        )

    async def journal(self) -> list[JournalBody]:
        """Every row, in the order it was written."""
        rows = await self.rows("SELECT body FROM journal ORDER BY seq")
        return [msgspec.json.decode(body, type=JournalBody) for (body,) in rows]

    async def writes(self) -> int:
        """Rows inserted and updated in this database so far, by backends that have ended."""
        sessions = await self.value(
            "SELECT count(*) - 1 FROM pg_stat_activity WHERE datname = current_database()"
        )
        assert sessions == 0
        return int(await self.value("SELECT sum(n_tup_ins + n_tup_upd) FROM pg_stat_user_tables"))

    async def put_tenant(self, fence: Fence, state: str = "ACTIVE", *, version: int, **config: Any) -> None:
        assert await self.store.put_tenant(
            TenantPlacement(
                tenant_id=fence.tenant_id,
                state=state,
                ownership_epoch=fence.epoch,
                config_version=version,
                config=TenantConfig(**config),
            )
        )

    async def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        return await (await self.sql.execute(query.encode(), parameters)).fetchall()

    async def value(self, query: str, *parameters: object) -> Any:
        ((value,),) = await self.rows(query, *parameters)
        return value

    async def everything(self) -> dict[str, Sequence[tuple[Any, ...]]]:
        """All that a refused write must have left alone."""
        return {
            table: await self.rows(f"SELECT t::text FROM {table} t ORDER BY 1")  # noqa: S608
            for table in (
                "jobs",
                "runs",
                "job_versions",
                "job_facets",
                "dlq",
                "targets",
                "journal",
                "idempotency_keys",
            )
        }


async def make_world(store: PostgresStore, sql: psycopg.AsyncConnection[Any]) -> World:
    host = await store.register_host(name="host-1", roles=["executor", "dispatcher"], lease_ms=60_000)
    a, b = (Fence(tenant_id=new_id(), epoch=EPOCH) for _ in range(2))
    world = World(store=store, sql=sql, a=a, b=b, host_id=host.host_id)
    for fence in (a, b):
        await world.put_tenant(fence, version=1, strict_jobs_per_second=2)
        await store.create_target(fence, target(fence.tenant_id), [secret()], host_id=host.host_id)
    return world


STRICT = Priority.CRITICAL
