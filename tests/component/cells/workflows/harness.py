"""Workflows over the real store: what a client, a worker and an engine do, step by step."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from cells.api.pulled import Ending, Outcome, ending_completion
from cells.domain import ids
from cells.domain.workflow.compatibility import first_divergence
from cells.domain.workflow.events import Event
from cells.domain.workflow.execution import Execution
from cells.domain.workflow.folding import fold
from cells.domain.workflow.parsing import parse_definition
from cells.ports import Completion, Fence, Retryable, Store
from cells.pulling import Held, Poller, PulledTask
from cells.store.arrays import datetime_to_ms
from cells.workflow_ports import NewExecution, Signalled, Taken, Turn, WorkflowRow
from cells.workflows.effects import execution_of, input_hash
from cells.workflows.job_runs import Beginner, completion_of, workflow_id
from cells.workflows.planner import CachedPlanner
from tests.component.cells.store.world import World, ms, now
from tests.waiting import eventually

ORDER = Path(__file__).parents[3].joinpath("cases/order_fulfillment.yaml").read_text()
ALL = list(range(256))
_decode: Any = msgspec.json.Decoder().decode


class AheadPlanner(CachedPlanner):
    """Decides as if that much time had passed."""

    ahead_ms = 0

    def plan(self, taken: Taken) -> Turn | None:
        ahead = self.ahead_ms
        items = [replace(item, at_ms=item.at_ms + ahead) for item in taken.inbox]
        return super().plan(replace(taken, now_ms=taken.now_ms + ahead, inbox=items))


@dataclass
class Flows:
    """One tenant's workflows."""

    world: World
    planner: AheadPlanner = field(default_factory=AheadPlanner)
    sources: dict[tuple[str, int], str] = field(default_factory=dict)
    begin: Beginner = field(default_factory=Beginner)
    url: str = ""  # of a database that may die
    behind: Store | None = None  # in front of the store, where something goes wrong

    @property
    def store(self) -> Store:
        return self.behind or self.world.store

    @property
    def tenant(self) -> uuid.UUID:
        return self.world.a.tenant_id

    @property
    def fence(self) -> Fence:
        return self.world.a

    async def register(self, text: str = ORDER) -> None:
        definition = parse_definition(text)
        name, version = definition.workflow, definition.version
        self.sources[name, version] = text
        await self.world.store.put_definition(
            self.fence, name=name, version=version, source=text, actor="key:test", host_id=self.world.host_id
        )

    def new(self, workflow_id: str, definition: str, given: Any = None) -> NewExecution:
        """What a start asks for."""
        version = max(v for name, v in self.sources if name == definition)
        at_ms = ms(now())
        return execution_of(
            run_id=ids.workflow_run_id(ids.fresh_id(now_ms=at_ms, entropy=os.urandom(10))),
            workflow_id=workflow_id,
            definition=definition,
            version=version,
            region_policy="HOME_ASYNC",
            given=given,
            hash_=input_hash(definition, None, given),
            at_ms=at_ms,
        )

    async def start(
        self, workflow_id: str = "order-88213", definition: str = "order_fulfillment", given: Any = None
    ) -> tuple[WorkflowRow, bool]:
        new = self.new(workflow_id, definition, given)
        return await self.store.start_workflow(self.fence, new, host_id=self.world.host_id)

    async def settle(self, rounds: int = 50) -> None:
        """Go round until nothing but waiting is left."""
        for _ in range(rounds):
            self.planner.begin()
            stepped = await self.store.step_workflows(
                self.planner, shards=ALL, but_not=(), limit=200, host_id=self.world.host_id
            )
            if not stepped.taken:
                return
        raise AssertionError("it never settles")

    async def runs_of_jobs(self) -> None:
        """Begin and end what jobs' runs have to do with workflows; and what follows from it."""
        host_id = self.world.host_id
        await self.store.start_job_workflows(workflow_id, self.begin, limit=100, host_id=host_id)
        await self.settle()
        await self.store.end_job_workflows(completion_of, limit=100, host_id=host_id)

    async def poll(self, queue: str, count: int = 1) -> Sequence[PulledTask]:
        poller = Poller(tenant_id=self.tenant, task_queue=queue, worker_id="w-1", count=count)
        (tasks,) = await self.store.poll([poller], host_id=self.world.host_id)
        return tasks

    async def finish(
        self, task: PulledTask, outcome: Outcome = Outcome.SUCCEEDED, result: Any = None, **more: Any
    ) -> bool:
        """End a task as its worker would; whether that took effect."""
        completion = await self._ending(task, outcome, result, **more)
        applied = await self.store.complete([completion], host_id=self.world.host_id)
        return applied.applied[0]

    async def finish_all(self, done: Sequence[tuple[PulledTask, Any]]) -> None:
        """End tasks together, with what each answers."""
        completions = [await self._ending(task, Outcome.SUCCEEDED, result) for task, result in done]
        applied = await self.store.complete(completions, host_id=self.world.host_id)
        assert all(applied.applied)

    async def _ending(self, task: PulledTask, outcome: Outcome, result: Any, **more: Any) -> Completion:
        claim = task.claim
        held = Held(tenant_id=self.tenant, key=claim.key, epoch=claim.epoch)
        (run,) = await self.store.pulled_runs([held])
        assert run is not None
        said = None if result is None else msgspec.json.encode(result).decode()
        ending = Ending(epoch=claim.epoch, outcome=outcome, result=said, **more)
        return ending_completion(run, ending, finished_ms=ms(now()), rand=0.0)

    async def do(self, queue: str, outcome: Outcome = Outcome.SUCCEEDED, **more: Any) -> PulledTask:
        """A worker's whole turn, and what follows from it."""
        (task,) = await self.poll(queue)
        assert await self.finish(task, outcome, **more)
        await self.settle()
        return task

    async def signal(
        self,
        workflow_id: str = "order-88213",
        signal_id: str = "s-1",
        name: str = "picked_up",
        payload: Any = None,
    ) -> Signalled | None:
        return await self.store.signal_workflow(
            self.fence,
            workflow_id=workflow_id,
            signal_id=signal_id,
            name=name,
            payload=msgspec.json.encode(payload),
            actor="key:test",
            host_id=self.world.host_id,
        )

    async def tell(self, kind: str, workflow_id: str = "order-88213", **data: Any) -> WorkflowRow | None:
        return await self.store.tell_workflow(
            self.fence,
            workflow_id=workflow_id,
            kind=kind,
            data=msgspec.json.encode(data),
            actor="key:test",
            host_id=self.world.host_id,
        )

    async def row(self, workflow_id: str = "order-88213", run_id: uuid.UUID | None = None) -> WorkflowRow:
        row = await self.store.get_workflow(self.tenant, workflow_id, run_id)
        assert row is not None
        return row

    async def events(self, row: WorkflowRow) -> list[Event]:
        stored = await self.world.store.workflow_history(self.tenant, row.run_id, after=0, limit=20_000)
        assert [e.seq for e in stored] == list(range(1, len(stored) + 1))
        assert row.next_seq == len(stored) + 1
        return [
            Event(seq=e.seq, type=e.type, at=datetime_to_ms(e.at), data=_decode(e.data), size=len(e.data))
            for e in stored
        ]

    async def history(self, workflow_id: str = "order-88213") -> list[Event]:
        """A history that a crash-free run could have made."""
        row = await self.row(workflow_id)
        events = await self.events(row)
        text = self.sources[row.definition, row.version]
        assert first_divergence(parse_definition(text), events) is None
        return events

    async def execution(self, workflow_id: str = "order-88213") -> Execution:
        return fold(await self.history(workflow_id))

    async def told(self, workflow_id: str = "order-88213") -> list[str]:
        """The history in short: `TYPE step`."""
        return [f"{e.type} {e.data.get('step', '')}".strip() for e in await self.history(workflow_id)]

    async def sql(self, statement: bytes, parameters: Mapping[str, Any] | None = None) -> list[Any]:
        cursor = await self.world.sql.execute(statement, parameters)
        return await cursor.fetchall() if cursor.description else []

    async def until_it_answers(self) -> None:
        """A database that died is there again, and so is our own connection to it."""

        async def answers() -> bool:
            try:
                if self.world.sql.closed and self.url:
                    self.world.sql = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
                await self.world.sql.execute(b"SELECT 1")
                await self.world.store.ping()
            except (psycopg.OperationalError, Retryable):
                return False
            return True

        await eventually(answers, timeout=60)

    async def later(self, ms: int) -> None:
        """As if that much time had passed; and what follows from it."""
        self.planner.ahead_ms += ms
        await self.sql(
            b"UPDATE workflows SET timer_at = timer_at - %(ms)s * interval '1 millisecond'",
            {"ms": self.planner.ahead_ms},
        )
        await self.settle()
