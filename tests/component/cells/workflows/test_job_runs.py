"""Jobs whose work is a workflow: how it begins with a run, and how the run ends with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import psycopg
import pytest

from cells.api.pulled import Outcome
from cells.domain.ids import RunKey
from cells.domain.job import TargetRef
from cells.domain.run import RunState
from cells.job_workflows import JobEnd, JobStart
from cells.ports import Completion, Retryable, RunRow
from cells.store.database import fetch_all
from cells.workflow_ports import NewExecution
from cells.workflows.job_runs import completion_of, workflow_id
from tests.component.cells.store.world import member_of, new_job, now, once, seconds_ago
from tests.component.cells.workflows.harness import Flows
from tests.component.cells.workflows.test_chains import LOOP

SHORT = msgspec.json.encode(
    {
        "workflow": "nightly",
        "version": 1,
        "steps": [{"id": "work", "activity": {"task_queue": "q", "type": "T"}, "compensate_with": "undo"}],
        "compensations": [{"id": "undo", "activity": {"task_queue": "q", "type": "U"}}],
    }
).decode()


class Job:
    """One that starts workflows, and its only run."""

    def __init__(self, flows: Flows, **target: Any):
        self.flows = flows
        at = seconds_ago(1)
        ref = TargetRef(type="WORKFLOW", **{"definition": "nightly", **target})
        self.job = new_job(at, once(at, target=ref))

    async def claimed(self) -> str:
        """Its run is claimed; the id of the workflow."""
        await self.flows.world.create(self.job)
        result = await self.flows.world.claim(member_of(self.job, self.flows.tenant))
        assert result.claims == [], "no host calls anything"
        return await self.workflow_id()

    async def workflow_id(self) -> str:
        (name,) = await self.flows.sql(b"SELECT DISTINCT workflow_id FROM workflows") or [("",)]
        return str(name[0])

    async def run(self) -> RunRow:
        rows = await self.flows.sql(b"SELECT parent_id, scheduled_for, ordinal FROM runs WHERE kind = 0")
        assert len(rows) == 1
        parent, at, ordinal = rows[0]
        key = RunKey(parent_id=parent, scheduled_for=at, ordinal=ordinal)
        row = await self.flows.store.get_run(self.flows.tenant, key)
        assert row is not None
        return row


async def test_a_run_ends_with_its_workflow(flows: Flows) -> None:
    await flows.register(SHORT)
    job = Job(flows)
    await job.claimed()
    run = await job.run()
    assert (run.state, run.claimed_at is None) == (RunState.RUNNING, False)
    await flows.runs_of_jobs()
    name = await job.workflow_id()
    assert name.startswith("job_")
    assert msgspec.json.decode((await job.run()).progress or b"{}")["workflow_id"] == name
    row = await flows.row(name)
    assert row.parent is not None
    assert row.parent["run_id"].replace(":", "-") == name
    task = await flows.do("q", result={"rows": 7})
    assert task.claim.payload == b'{"n":1}'
    assert (await job.run()).state is RunState.RUNNING
    await flows.runs_of_jobs()
    run = await job.run()
    assert run.state is RunState.SUCCEEDED
    assert run.attempts[-1].body == '{"rows":7}'
    assert await flows.sql(b"SELECT * FROM job_workflows") == []


async def test_a_run_that_does_not_wait_ends_when_its_workflow_has_begun(flows: Flows) -> None:
    await flows.register(SHORT)
    job = Job(flows, wait=False)
    await job.claimed()
    await flows.runs_of_jobs()
    assert (await job.run()).state is RunState.SUCCEEDED
    assert (await flows.row(await job.workflow_id())).status == "RUNNING"


async def test_a_failed_workflow_fails_its_run_into_the_dlq(flows: Flows) -> None:
    await flows.register(SHORT)
    job = Job(flows)
    await job.claimed()
    await flows.runs_of_jobs()
    await flows.do("q", Outcome.FAILED, error="no space", retryable=False)
    await flows.runs_of_jobs()
    run = await job.run()
    assert (run.state, run.reason) == (RunState.FAILED, "the workflow is COMPENSATED: no space")
    letters = await flows.sql(b"SELECT reason, target_id, error FROM dlq WHERE state = 'OPEN'")
    assert ("workflow:nightly" in {target for _, target, _ in letters}) is True


async def test_cancelling_a_run_cancels_its_workflow_which_undoes(flows: Flows) -> None:
    await flows.register(SHORT)
    job = Job(flows)
    await job.claimed()
    await flows.runs_of_jobs()
    (task,) = await flows.poll("q")
    run = await job.run()
    await flows.store.cancel_run(flows.fence, key=run.key, actor="key:test", host_id=flows.world.host_id)
    await flows.settle()
    name = await job.workflow_id()
    assert (await flows.row(name)).status == "COMPENSATING"
    assert await flows.finish(task)
    await flows.settle()
    await flows.do("q")
    assert (await flows.row(name)).status == "CANCELLED"
    await flows.runs_of_jobs()
    assert (await job.run()).state is RunState.CANCELLED


async def test_a_run_that_is_cancelled_first_begins_no_workflow(flows: Flows) -> None:
    await flows.register(SHORT)
    job = Job(flows)
    await job.claimed()
    run = await job.run()
    await flows.store.cancel_run(flows.fence, key=run.key, actor="key:test", host_id=flows.world.host_id)
    await flows.runs_of_jobs()
    assert (await job.run()).state is RunState.CANCELLED
    assert await flows.sql(b"SELECT * FROM workflows") == []


async def test_without_its_definition_a_run_fails(flows: Flows) -> None:
    await flows.register(SHORT)
    job = Job(flows, definition="other")
    await job.claimed()
    await flows.runs_of_jobs()
    run = await job.run()
    assert (run.state, run.reason) == (
        RunState.FAILED,
        "the workflow is FAILED: there is no definition other",
    )


async def test_an_id_that_is_taken_fails_the_run_and_not_the_other_workflow(flows: Flows) -> None:
    await flows.register(SHORT)
    job = Job(flows)
    await job.claimed()
    run = await job.run()
    name = str(run.key).replace(":", "-")
    await flows.start(name, "nightly")
    await flows.runs_of_jobs()
    assert (await job.run()).state is RunState.FAILED
    assert (await flows.row(name)).status == "RUNNING"


async def test_a_redriven_run_begins_its_workflow_anew_under_keys_of_its_own(flows: Flows) -> None:
    await flows.register(SHORT)
    job = Job(flows)
    await job.claimed()
    await flows.runs_of_jobs()
    await flows.do("q", Outcome.FAILED, error="no space", retryable=False)
    await flows.runs_of_jobs()
    # What a redrive writes.
    await flows.sql(
        b"UPDATE runs SET state = 'DUE', series = 2, attempt = 0, timer_at = now(), finished_at = NULL"
        b" WHERE kind = 0"
    )
    ((parent, at, shard),) = await flows.sql(
        b"SELECT parent_id, scheduled_for, shard FROM runs WHERE kind = 0"
    )
    member = member_of(job.job, flows.tenant)
    changed = {"is_run": True, "generation": 2 * 65536, "shard": shard, "parent_id": parent}
    await flows.world.claim(msgspec.structs.replace(member, scheduled_for=int(at.timestamp()), **changed))
    await flows.runs_of_jobs()
    task = await flows.do("q")
    assert task.claim.idempotency_key != f"{await job.workflow_id()}:work"
    await flows.runs_of_jobs()
    assert (await job.run()).state is RunState.SUCCEEDED


async def test_starting_and_ending_again_changes_nothing(flows: Flows) -> None:
    await flows.register(SHORT)
    job = Job(flows)
    await job.claimed()
    await flows.runs_of_jobs()
    await flows.runs_of_jobs()  # by somebody who did not hear of the first
    await flows.do("q")
    await flows.runs_of_jobs()
    await flows.runs_of_jobs()
    run = await job.run()
    assert (run.state, len(run.attempts)) == (RunState.SUCCEEDED, 1)
    assert await flows.sql(b"SELECT count(*) FROM workflows") == [(1,)]


async def test_a_run_whose_completion_is_refused_is_completed_later(flows: Flows) -> None:
    await flows.register(SHORT)
    job = Job(flows)
    await job.claimed()
    await flows.runs_of_jobs()
    await flows.do("q")

    def sealed_meanwhile(end: JobEnd) -> Completion:
        """Its tenant is sealed between the look and the completion."""
        with psycopg.connect(flows.url, autocommit=True) as sql:
            sql.execute(b"UPDATE tenants SET state = 'SEALED' WHERE tenant_id = %s", [end.tenant_id])
        return completion_of(end)

    await flows.store.end_job_workflows(sealed_meanwhile, limit=10, host_id=flows.world.host_id)
    assert (await job.run()).state is RunState.RUNNING
    assert await flows.sql(b"SELECT todo FROM job_workflows") == [("END",)]
    await flows.sql(b"UPDATE tenants SET state = 'ACTIVE'")
    await flows.runs_of_jobs()
    assert (await job.run()).state is RunState.SUCCEEDED
    assert await flows.sql(b"SELECT todo FROM job_workflows") == []


async def test_cancelling_a_run_reaches_the_end_of_a_long_chain(flows: Flows) -> None:
    await flows.register(LOOP)
    job = Job(flows, definition="loop")
    await job.claimed()
    await flows.runs_of_jobs()
    name = await job.workflow_id()
    first = await flows.row(name)
    await flows.do("q")
    await flows.settle()
    assert (await flows.row(name)).run_id != first.run_id
    # The first one has left for the lake.
    await flows.sql(b"DELETE FROM workflows WHERE run_id = %(run)s", {"run": first.run_id})
    run = await job.run()
    await flows.store.cancel_run(flows.fence, key=run.key, actor="key:test", host_id=flows.world.host_id)
    await flows.settle()
    assert (await flows.execution(name)).cancel_requested


async def test_an_earlier_workflow_of_a_run_does_not_end_it(flows: Flows) -> None:
    await flows.register(SHORT)
    job = Job(flows)
    await job.claimed()
    await flows.runs_of_jobs()
    name = await job.workflow_id()
    first = await flows.row(name)
    # The run was redriven: another workflow works for it.
    await flows.sql(b"UPDATE job_workflows SET run_id = %(run)s", {"run": first.run_id.hex[:-4] + "0000"})
    await flows.do("q")
    assert (await flows.row(name)).status == "COMPLETED"
    await flows.runs_of_jobs()
    assert (await job.run()).state is RunState.RUNNING


async def test_one_that_cannot_begin_keeps_no_other_up(flows: Flows) -> None:
    await flows.register(SHORT)
    jobs = [Job(flows) for _ in range(5)]
    for job in jobs:
        await job.claimed()
    await flows.sql(b"UPDATE job_workflows SET at = at - interval '1 hour'")
    bad = jobs[2].job.job_id

    def begin(start: JobStart) -> NewExecution | str:
        if start.key.parent_id == bad:
            raise ZeroDivisionError("it cannot be read")
        return flows.begin(start)

    for _ in range(5):
        await flows.store.start_job_workflows(workflow_id, begin, limit=100, host_id=flows.world.host_id)
    begun = await flows.sql(b"SELECT parent_id, todo FROM job_workflows")
    assert [parent for parent, todo in begun if todo == "START"] == [bad]
    assert await flows.sql(b"SELECT count(*) FROM workflows") == [(4,)]
    # What hindered it is mended.
    await flows.sql(b"UPDATE job_workflows SET at = now() WHERE todo = 'START'")
    await flows.runs_of_jobs()
    assert await flows.sql(b"SELECT count(*) FROM workflows") == [(5,)]


async def test_one_that_cannot_be_ended_keeps_no_other_up(flows: Flows) -> None:
    await flows.register(SHORT)
    jobs = [Job(flows) for _ in range(3)]
    for job in jobs:
        await flows.world.create(job.job)
        await flows.world.claim(member_of(job.job, flows.tenant))
    await flows.runs_of_jobs()
    for _ in jobs:
        await flows.do("q")
    stuck = jobs[1].job.job_id

    def finish(end: JobEnd) -> Completion:
        if end.key.parent_id == stuck:
            raise ZeroDivisionError(stuck)
        return completion_of(end)

    await flows.store.end_job_workflows(finish, limit=10, host_id=flows.world.host_id)
    states = dict(await flows.sql(b"SELECT parent_id, state FROM runs WHERE kind = 0"))
    assert [states[job.job.job_id] for job in jobs] == ["SUCCEEDED", "RUNNING", "SUCCEEDED"]
    assert await flows.store.end_job_workflows(finish, limit=10, host_id=flows.world.host_id) == (0, ())
    await flows.sql(b"UPDATE job_workflows SET at = now()")
    await flows.store.end_job_workflows(completion_of, limit=10, host_id=flows.world.host_id)
    assert await flows.sql(b"SELECT count(*) FROM job_workflows") == [(0,)]


async def test_tenants_take_turns_in_having_their_workflows_begun_and_ended(flows: Flows) -> None:
    other = Flows(world=replace(flows.world, a=flows.world.b))
    for each, count in ((flows, 4), (other, 1)):
        await each.register(SHORT)
        for _ in range(count):
            job = Job(each)
            await each.world.create(job.job)
            await each.world.claim(member_of(job.job, each.tenant))
    host_id = flows.world.host_id
    assert await flows.store.start_job_workflows(workflow_id, flows.begin, limit=2, host_id=host_id) == 2
    assert await flows.sql(b"SELECT count(DISTINCT tenant_id) FROM workflows") == [(2,)]
    await flows.store.start_job_workflows(workflow_id, flows.begin, limit=10, host_id=host_id)
    await flows.settle()
    for each, count in ((flows, 4), (other, 1)):
        for _ in range(count):
            await each.do("q")
    assert (await flows.store.end_job_workflows(completion_of, limit=2, host_id=host_id))[0] == 2
    left = await flows.sql(b"SELECT tenant_id, count(*)::int FROM job_workflows GROUP BY 1")
    assert left == [(flows.tenant, 3)]


async def test_another_engine_starts_those_behind_what_the_first_one_starts(flows: Flows) -> None:
    await flows.register(SHORT)
    for _ in range(4):
        job = Job(flows)
        await flows.world.create(job.job)
        await flows.world.claim(member_of(job.job, flows.tenant))
    host_id = flows.world.host_id
    async with flows.world.store._database.transaction() as first:
        held = await fetch_all(first, "job_workflow_starts", {"limit": 2})
        assert len(held) == 2
        assert await flows.store.start_job_workflows(workflow_id, flows.begin, limit=2, host_id=host_id) == 2
    assert await flows.store.start_job_workflows(workflow_id, flows.begin, limit=9, host_id=host_id) == 2


async def test_timers_of_runs_that_ended_are_handed_on_though_others_cannot_end_now(flows: Flows) -> None:
    await flows.register(SHORT)
    jobs = [Job(flows) for _ in range(3)]
    for job in jobs:
        await flows.world.create(job.job)
        await flows.world.claim(member_of(job.job, flows.tenant))
    await flows.runs_of_jobs()
    for _ in jobs:
        await flows.do("q", Outcome.FAILED, error="no space", retryable=False)
    tries: list[RunKey] = []

    def finish(end: JobEnd) -> Completion:
        tries.append(end.key)
        if len(tries) == 3:
            raise ZeroDivisionError
        if len(tries) > 4:
            raise Retryable("the database is away")
        return replace(
            completion_of(end),
            state=RunState.RETRY_WAIT,
            timer_at=now() + timedelta(minutes=1),
            fingerprint=None,
        )

    host_id = flows.world.host_id
    ended, timers = await flows.store.end_job_workflows(finish, limit=10, host_id=host_id)
    assert (ended, [member.parent_id for member in timers]) == (1, [tries[0].parent_id])
    with pytest.raises(Retryable):
        await flows.store.end_job_workflows(finish, limit=10, host_id=host_id)
    await flows.store.end_job_workflows(completion_of, limit=10, host_id=host_id)
    assert await flows.sql(b"SELECT count(*) FROM job_workflows") == [(0,)]
