"""The store against a small model: random histories, after each step every row is as the model says.

The model is the state machines of `cells.domain.transitions` and nothing else.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cells.domain.ids import RunKey
from cells.domain.job import JobState
from cells.domain.run import RunState
from cells.domain.transitions import job_allowed, run_allowed
from cells.ports import Claim, Conflict, NewJob
from cells.store.postgres import PostgresStore
from tests.component.cells.store.world import World, make_world, member_of, new_job, now, once, seconds_ago

OUTCOMES = [RunState.SUCCEEDED, RunState.FAILED, RunState.RETRY_WAIT, RunState.CANCELLED, RunState.UNKNOWN]
STEPS = ["create", "claim", "complete", "stale", "release", "cancel", "state", "trigger", "die"]


@dataclass
class Run:
    state: RunState
    epoch: int = 0
    attempts: int = 0  # entries in the array
    cancel: bool = False
    claim: Claim | None = None
    old: list[Claim] = field(default_factory=list)


@dataclass
class Model:
    """What should be there."""

    world: World
    jobs: dict[Any, tuple[NewJob, JobState]] = field(default_factory=dict)
    runs: dict[RunKey, Run] = field(default_factory=dict)
    metered: int = 0

    def end(self, run: Run, state: RunState) -> None:
        if run.cancel:
            state = {
                RunState.SUCCEEDED: RunState.SUCCEEDED_AFTER_CANCEL,
                RunState.RETRY_WAIT: RunState.CANCELLED,
            }.get(state, state)
        run.state = state
        if run.claim is not None:
            run.old.append(run.claim)
            run.claim = None
        if state is not RunState.RETRY_WAIT:
            self.metered += 1

    async def step(self, kind: str, pick: Any) -> None:
        await getattr(self, f"do_{kind}")(pick)

    async def do_create(self, pick: Any) -> None:
        at = seconds_ago(pick([1, -3600]))
        job = new_job(at, once(at))
        await self.world.create(job)
        self.jobs[job.job_id] = (job, JobState.ACTIVE)

    async def do_claim(self, pick: Any) -> None:
        """Every member anybody may still have, stale ones included."""
        tenant = self.world.a.tenant_id
        members = [member_of(job, tenant) for job, _ in self.jobs.values()]
        async for page in self.world.store.due_members(
            shards=range(256), since=None, until=now() + timedelta(hours=2)
        ):
            members += [m for m in page if m.is_run and m.tenant_id == tenant]
        result = await self.world.claim(*members)
        expected = {key for key, run in self.runs.items() if run_allowed("claim", run.state)}
        for job_id, (job, state) in self.jobs.items():
            if state is JobState.ACTIVE and job.due_at is not None and job.due_at <= now():
                assert job.next_run_at is not None
                expected.add(RunKey(parent_id=job_id, scheduled_for=job.next_run_at))
                self.jobs[job_id] = (job, JobState.DONE)
        assert {claim.key for claim in result.claims} == expected
        for claim in result.claims:
            run = self.runs.setdefault(claim.key, Run(state=RunState.RUNNING))
            assert claim.epoch > run.epoch
            run.state, run.epoch, run.claim = RunState.RUNNING, claim.epoch, claim

    async def do_complete(self, pick: Any) -> None:
        for run in [run for run in self.runs.values() if run.claim is not None]:
            state = pick(OUTCOMES)
            assert run.claim is not None
            assert await self.world.complete(run.claim, state)
            run.attempts += 1
            self.end(run, state)

    async def do_stale(self, pick: Any) -> None:
        for claim in [claim for run in self.runs.values() for claim in run.old]:
            assert not await self.world.complete(claim, pick(OUTCOMES))

    async def do_release(self, pick: Any) -> None:
        claims = [run.claim for run in self.runs.values() if run.claim is not None]
        await self.world.store.release(claims, host_id=self.world.host_id)
        for run in self.runs.values():
            if run.claim is not None:
                self.end(run, RunState.RETRY_WAIT)

    async def do_cancel(self, pick: Any) -> None:
        if not self.runs:
            return
        key = pick(sorted(self.runs, key=str))
        run = self.runs[key]
        waits, works = run_allowed("cancel", run.state), run_allowed("stop", run.state)
        try:
            await self.world.store.cancel_run(self.world.a, key=key, actor="x", host_id=self.world.host_id)
        except Conflict:
            assert not waits
            assert not works
            return
        assert waits or works or run.cancel
        if waits:
            self.end(run, RunState.CANCELLED)
        run.cancel = True

    async def do_state(self, pick: Any) -> None:
        if not self.jobs:
            return
        job_id = pick(sorted(self.jobs))
        job, current = self.jobs[job_id]
        verb, state = pick(
            [("pause", JobState.PAUSED), ("resume", JobState.ACTIVE), ("cancel", JobState.CANCELLED)]
        )
        try:
            await self.world.set_state(job, state, job.next_run_at)
        except Conflict:
            assert not job_allowed(verb, current)
            return
        assert current is state or job_allowed(verb, current)
        if state is JobState.CANCELLED and current is not state:
            for key, run in self.runs.items():
                if key.parent_id == job_id and run.state is RunState.RUNNING:
                    run.cancel = True
                elif key.parent_id == job_id and run_allowed("cancel", run.state):
                    self.end(run, RunState.CANCELLED)
        self.jobs[job_id] = (job, state)

    async def do_trigger(self, pick: Any) -> None:
        if not self.jobs:
            return
        job_id = pick(sorted(self.jobs))
        started: dict[str, Any] = {"payload": None, "actor": "x", "traceparent": None, "idempotency": None}
        try:
            run, _, _ = await self.world.store.trigger_job(
                self.world.a, job_id=job_id, now=now(), host_id=self.world.host_id, **started
            )
        except Conflict:
            assert self.jobs[job_id][1] is JobState.CANCELLED
            return
        assert self.jobs[job_id][1] is not JobState.CANCELLED
        self.runs[run.key] = Run(state=RunState.DUE)

    async def do_die(self, pick: Any) -> None:
        """The host dies; the next one takes back what it held."""
        heir = await self.world.store.register_host(name="heir", roles=[], lease_ms=60_000)
        await self.world.store.retire_host(host_id=self.world.host_id)
        self.world.host_id = heir.host_id
        await self.world.store.reap(host_id=heir.host_id)
        for run in self.runs.values():
            if run.claim is not None:
                run.attempts += 1
                self.end(run, RunState.RETRY_WAIT)

    async def check(self) -> None:
        tenant = self.world.a.tenant_id
        rows = await self.world.rows(
            "SELECT parent_id, scheduled_for, ordinal, state, epoch, jsonb_array_length(attempts),"
            " cancel_requested FROM runs WHERE tenant_id = %s",
            tenant,
        )
        found = {RunKey(parent_id=r[0], scheduled_for=r[1], ordinal=r[2]): r[3:] for r in rows}
        assert found == {
            key: (run.state.value, run.epoch, run.attempts, run.cancel) for key, run in self.runs.items()
        }
        states = dict(await self.world.rows("SELECT job_id, state FROM jobs WHERE tenant_id = %s", tenant))
        assert states == {job_id: state.value for job_id, (_, state) in self.jobs.items()}
        dead = sum(run.state in (RunState.FAILED, RunState.UNKNOWN) for run in self.runs.values())
        assert await self.world.value("SELECT count(*) FROM dlq WHERE tenant_id = %s", tenant) == dead
        metered: dict[str, int] = {}
        for body in await self.world.journal():
            for counted, metric, _, quantity in body.counts:
                if counted == tenant.hex:
                    metered[metric] = metered.get(metric, 0) + quantity
        assert metered.get("job_runs", 0) == self.metered
        assert metered.get("run_attempts", 0) == sum(run.attempts for run in self.runs.values())


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(st.sampled_from(STEPS), min_size=8, max_size=25), data=st.data())
def test_histories(cell_database_url: str, steps: list[str], data: st.DataObject) -> None:
    def pick(choices: list[Any]) -> Any:
        return data.draw(st.sampled_from(choices))

    async def play() -> None:
        async with (
            PostgresStore(cell_database_url, cell_name="cell-1", pool_size=2) as store,
            await psycopg.AsyncConnection.connect(cell_database_url, autocommit=True) as sql,
        ):
            model = Model(world=await make_world(store, sql))
            for step in ["create", "create", *steps]:
                await model.step(step, pick)
                await model.check()

    asyncio.run(play())
