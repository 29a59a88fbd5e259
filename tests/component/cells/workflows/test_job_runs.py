"""Jobs whose work is a workflow: how it begins with a run, and how the run ends with it."""

from __future__ import annotations

from typing import Any

import msgspec

from cells.api.pulled import Outcome
from cells.domain.ids import RunKey
from cells.domain.job import TargetRef
from cells.domain.run import RunState
from cells.ports import RunRow
from tests.component.cells.store.world import member_of, new_job, once, seconds_ago
from tests.component.cells.workflows.harness import Flows

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
