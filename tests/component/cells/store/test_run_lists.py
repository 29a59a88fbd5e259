"""Lists of runs and dead letters cost what a page may cost, whatever is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from cells.domain.ids import RunKey
from cells.domain.run import RunState
from cells.ports import RunFilter
from tests.component.cells.store.world import World, completion, member_of, new_job, seconds_ago


async def test_a_page_of_runs_looks_at_a_few_and_goes_on_from_there(world: World) -> None:
    start = seconds_ago(50)
    jobs = [new_job(start + timedelta(seconds=i)) for i in range(6)]
    await world.create(*jobs)
    claims = (await world.claim(*(member_of(job, world.a.tenant_id) for job in jobs))).claims
    claims = sorted(claims, key=lambda claim: claim.key.scheduled_for)
    wanted = {claims[0].key, claims[4].key}
    ended = [completion(claim, RunState.SUCCEEDED) for claim in claims if claim.key in wanted]
    await world.store.complete(ended, host_id=world.host_id)
    where = RunFilter(states=(RunState.SUCCEEDED,))
    pages: list[Sequence[RunKey]] = []
    after: RunKey | None = None
    while not pages or after is not None:
        found = await world.store.find_runs(world.a.tenant_id, where, after=after, limit=5, looks=2)
        pages.append([run.key for run in found.runs])
        after = found.reached
    # Three of two runs each, and one to see that this was all.
    assert [len(page) for page in pages] == [1, 0, 1, 0]
    assert [*pages[0], *pages[2]] == sorted(wanted, key=lambda key: key.scheduled_for, reverse=True)
    of_job = RunFilter(job_id=claims[0].key.parent_id, states=(RunState.FAILED,))
    last = await world.store.find_runs(world.a.tenant_id, of_job, after=None, limit=5, looks=1)
    assert (last.runs, last.reached) == ([], claims[0].key)
    full = await world.store.find_runs(world.a.tenant_id, where, after=None, limit=1, looks=9)
    assert (len(full.runs), full.reached) == (1, None)
