"""Workflows over the store: an engine and batching workers in one process, without HTTP between them.

Each workflow has five steps that workers do. Counted are steps from their scheduling by the engine to
their end in the history; the start of the workflows is not. Replay is folding and deciding alone.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import uuid
from collections.abc import Mapping

import uvloop

from cells.api.pulled import Ending, Outcome, ending_completion
from cells.domain import ids
from cells.domain.workflow.compatibility import first_divergence
from cells.domain.workflow.parsing import parse_definition
from cells.host import GC_THRESHOLDS
from cells.ports import Fence, TenantConfig, TenantPlacement
from cells.pulling import Held, Poller
from cells.store.engine import read_histories
from cells.store.migrate import migrate
from cells.store.postgres import PostgresStore
from cells.workflow_ports import WorkflowFilter
from cells.workflows.effects import execution_of, input_hash
from cells.workflows.planner import CachedPlanner
from deploy.engines import temporary_postgres
from tests.bench.frame import Bar, Bench

WORKFLOWS = 1_000
STEPS = 5
WORKERS = 2
BATCH = 200
QUEUE = "bench"
TEXT = "workflow: bench\nversion: 1\nsteps:\n" + "".join(
    f"  - {{id: s{n}, activity: {{task_queue: {QUEUE}, type: T}}}}\n" for n in range(STEPS)
)
_SHARDS = list(range(256))


class _World:
    def __init__(self, store: PostgresStore, host_id: int, tenant: uuid.UUID):
        self.store = store
        self.host_id = host_id
        self.tenant = tenant
        self.ended = 0

    async def engine(self) -> None:
        """Rounds until every step has ended."""
        planner = CachedPlanner()
        while self.ended < WORKFLOWS * STEPS:
            planner.begin()
            stepped = await self.store.step_workflows(
                planner, shards=_SHARDS, but_not=(), limit=BATCH, host_id=self.host_id
            )
            self.ended += sum(turn.steps for turn in stepped.turns)
            await asyncio.sleep(0.002 if stepped.taken else 0.01)

    async def worker(self, name: str) -> None:
        """Takes many tasks at once, and ends them at once."""
        poller = Poller(tenant_id=self.tenant, task_queue=QUEUE, worker_id=name, count=BATCH)
        while self.ended < WORKFLOWS * STEPS:
            (tasks,) = await self.store.poll([poller], host_id=self.host_id)
            if not tasks:
                await asyncio.sleep(0.01)
                continue
            held = [Held(tenant_id=self.tenant, key=t.claim.key, epoch=t.claim.epoch) for t in tasks]
            runs = await self.store.pulled_runs(held)
            now_ms = time.time_ns() // 1_000_000
            completions = [
                ending_completion(
                    run,
                    Ending(epoch=run.claim.epoch, outcome=Outcome.SUCCEEDED, result='{"ok":true}'),
                    finished_ms=now_ms,
                    rand=0.0,
                )
                for run in runs
                if run is not None
            ]
            await self.store.complete(completions, host_id=self.host_id)


async def _measure(store: PostgresStore) -> Mapping[str, float]:
    await store.ensure_partitions(days_ahead=1)
    tenant = ids.fresh_id(now_ms=0, entropy=uuid.uuid4().bytes[:10])
    await store.put_tenant(
        TenantPlacement(
            tenant_id=tenant, state="ACTIVE", ownership_epoch=1, config_version=1, config=TenantConfig()
        )
    )
    host = (await store.register_host(name="bench-1", roles=["engine"], lease_ms=3_600_000)).host_id
    fence = Fence(tenant_id=tenant, epoch=1)
    await store.put_definition(fence, name="bench", version=1, source=TEXT, actor="key:bench", host_id=host)
    began = time.perf_counter()
    for n in range(WORKFLOWS):
        now_ms = time.time_ns() // 1_000_000
        new = execution_of(
            run_id=ids.workflow_run_id(ids.fresh_id(now_ms=now_ms, entropy=uuid.uuid4().bytes[:10])),
            workflow_id=f"bench-{n}",
            definition="bench",
            version=1,
            region_policy="HOME_ASYNC",
            given={"n": n},
            hash_=input_hash("bench", 1, {"n": n}),
            at_ms=now_ms,
        )
        await store.start_workflow(fence, new, host_id=host)
    starting = time.perf_counter() - began
    world = _World(store, host, tenant)
    began = time.perf_counter()
    await asyncio.gather(world.engine(), *(world.worker(f"w-{n}") for n in range(WORKERS)))
    seconds = time.perf_counter() - began
    done = await store.list_workflows(tenant, WorkflowFilter(status="COMPLETED"), after=None, limit=WORKFLOWS)
    if len(done.rows) != WORKFLOWS:
        raise RuntimeError(f"{len(done.rows)} of {WORKFLOWS} workflows were completed")
    async with store._database.transaction() as connection:
        histories = await read_histories(connection, [(tenant, row.run_id) for row in done.rows[:200]])
    definition = parse_definition(TEXT)
    began = time.perf_counter()
    for history in histories:
        if first_divergence(definition, history) is not None:
            raise RuntimeError("a history could not have been made so")
    replaying = time.perf_counter() - began
    return {
        "steps_per_s": WORKFLOWS * STEPS / seconds,
        "workflows_per_s": WORKFLOWS / seconds,
        "starts_one_by_one_per_s": WORKFLOWS / starting,
        "replayed_and_decided_events_per_s": sum(map(len, histories)) / replaying,
    }


async def _run(url: str) -> Mapping[str, float]:
    gc.set_threshold(*GC_THRESHOLDS)
    async with PostgresStore(url, cell_name="bench", pool_size=6) as store:
        return await _measure(store)


def once() -> Mapping[str, float]:
    """A fresh PostgreSQL with fsync, one store."""
    with temporary_postgres(durable=True) as postgres:
        migrate(postgres.url)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(postgres.url))


BENCH = Bench(
    name="workflows",
    title="Workflows: steps by batching pull workers over the store, without HTTP",
    topology="PostgreSQL (fsync), one process with an engine and two workers",
    once=once,
    bars=(Bar(figure="steps_per_s", what="steps of workflows", bar=2_400, floor=1_650, unit="/s"),),
    runs=1,
    default=False,
)

if __name__ == "__main__":
    sys.stdout.write(f"{once()}\n")
