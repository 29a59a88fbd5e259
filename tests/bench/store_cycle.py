"""The store alone: claim, advance and complete in batches of 200; creation in batches of 1,000.

Two figures matter for each: what PostgreSQL and Python reach together, and how much of it is CPU of
this process, because the executor pays that on top of its calls.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import uvloop

from cells.domain.ids import fresh_id, shard_of
from cells.domain.job import JobDefinition, JobState, Schedule, ScheduleType, TargetRef
from cells.domain.run import Attempt, AttemptOutcome, RunState
from cells.host import GC_THRESHOLDS
from cells.ports import Claim, Completion, Fence, Member, NewJob, TenantConfig, TenantPlacement
from cells.store.migrate import migrate
from cells.store.postgres import PostgresStore
from deploy.engines import temporary_postgres
from tests.bench.frame import Bar, Bench

JOBS = 20_000
BATCH = 200
CREATE_BATCH = 1_000
WORKERS = 3


def _job(at: datetime, schedule: Schedule) -> NewJob:
    job_id = fresh_id(now_ms=time.time_ns() // 1_000_000, entropy=uuid.uuid4().bytes[:10])
    target = TargetRef(target_id="tgt_bench", path="/run")
    return NewJob(
        job_id=job_id,
        definition=JobDefinition(schedule=schedule, target=target, dispatch_window_seconds=300),
        payload=b'{"report":"daily","customer":42}',
        shard=shard_of(job_id),
        window_ms=300_000,
        offset_ms=0,
        next_run_at=at,
        due_at=at,
        state=JobState.ACTIVE,
        actor="key:bench",
    )


def _member(tenant: uuid.UUID, job: NewJob, at: datetime) -> Member:
    seconds = int(at.timestamp())
    return Member(
        tenant_id=tenant,
        parent_id=job.job_id,
        scheduled_for=seconds,
        generation=1,
        priority=2,
        due_ms=seconds * 1000,
        shard=job.shard,
        released_ms=seconds * 1000,
    )


def _completion(claim: Claim) -> Completion:
    at = "2026-09-28T12:00:00.123Z"
    return Completion(
        tenant_id=claim.tenant_id,
        key=claim.key,
        epoch=claim.epoch,
        state=RunState.SUCCEEDED,
        attempt=Attempt(
            number=claim.attempt,
            epoch=claim.epoch,
            outcome=AttemptOutcome.SUCCEEDED,
            claimed_at=at,
            started_at=at,
            finished_at=at,
            host="bench-1",
            status=200,
            body="ok",
        ),
        target_id="tgt_bench",
        started_ms=claim.claimed_ms,
        finished_ms=claim.claimed_ms + 5,
        first_attempt_lag_ms=3,
        egress_bytes=32,
        priority=claim.priority,
        shard=claim.shard,
    )


async def _cycle(
    store: PostgresStore, host_id: int, batches: Sequence[Sequence[Member]], waiting: list[int]
) -> None:
    while waiting:
        members = batches[waiting.pop()]
        claims = (await store.claim(members, host_id=host_id, host_name="bench-1")).claims
        completions = [_completion(claim) for claim in claims]
        applied = await store.complete(completions, host_id=host_id)
        if sum(applied.applied) != len(members):
            raise RuntimeError(f"{sum(applied.applied)} of {len(members)} runs were completed")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _measure(store: PostgresStore) -> Mapping[str, float]:
    await store.ensure_partitions(days_ahead=1)
    tenant = fresh_id(now_ms=0, entropy=uuid.uuid4().bytes[:10])
    await store.put_tenant(
        TenantPlacement(
            tenant_id=tenant, state="ACTIVE", ownership_epoch=1, config_version=1, config=TenantConfig()
        )
    )
    fence = Fence(tenant_id=tenant, epoch=1)
    host = await store.register_host(name="bench-1", roles=["executor"], lease_ms=600_000)
    figures: dict[str, float] = {}
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)  # as the host does
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=5)
    kinds = {
        "recurring": Schedule(type=ScheduleType.RATE, every_seconds=60, start_at=start.isoformat()),
        "once": Schedule(type=ScheduleType.ONCE, run_at=start.isoformat()),
    }
    for kind, schedule in kinds.items():
        jobs = [_job(start, schedule) for _ in range(JOBS)]
        began, cpu = time.perf_counter(), _cpu()
        for at in range(0, JOBS, CREATE_BATCH):
            chunk = jobs[at : at + CREATE_BATCH]
            await store.create_jobs([fence] * len(chunk), chunk, host_id=host.host_id)
        figures[f"created_per_s_{kind}"] = JOBS / (time.perf_counter() - began)
        figures[f"create_cpu_us_{kind}"] = 1e6 * (_cpu() - cpu) / JOBS
        members = [_member(tenant, job, start) for job in jobs]
        batches = [members[at : at + BATCH] for at in range(0, JOBS, BATCH)]
        waiting = list(range(len(batches)))
        began, cpu = time.perf_counter(), _cpu()
        await asyncio.gather(*(_cycle(store, host.host_id, batches, waiting) for _ in range(WORKERS)))
        figures[f"runs_per_s_{kind}"] = JOBS / (time.perf_counter() - began)
        figures[f"cycle_cpu_us_{kind}"] = 1e6 * (_cpu() - cpu) / JOBS
    return figures


def once() -> Mapping[str, float]:
    """A fresh PostgreSQL with fsync, one store."""

    async def measured(url: str) -> Mapping[str, float]:
        async with PostgresStore(url, cell_name="bench", pool_size=WORKERS + 1) as store:
            return await _measure(store)

    with temporary_postgres(durable=True) as postgres:
        migrate(postgres.url)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(measured(postgres.url))


BENCH = Bench(
    name="store-cycle",
    title=f"claim + advance + complete in batches of {BATCH}, {WORKERS} at a time",
    topology="one process, PostgreSQL with fsync and synchronous_commit on",
    once=once,
    bars=(
        Bar(figure="runs_per_s_recurring", what="runs through the store", bar=10_000, unit="/s"),
        Bar(figure="runs_per_s_once", what="one-shot runs through the store", bar=10_000, unit="/s"),
        Bar(figure="created_per_s_recurring", what="jobs created in batches", bar=15_000, unit="/s"),
        Bar(figure="cycle_cpu_us_recurring", what="Python CPU of a run", bar=40, unit="µs", better="lower"),
    ),
)

if __name__ == "__main__":
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(once())).decode() + "\n")
