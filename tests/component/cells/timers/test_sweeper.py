"""What the straggler sweep puts back, and what it leaves alone."""

from __future__ import annotations

import pytest

from cells.ports import Member
from cells.timers import sweeper as module
from cells.timers.members import pack
from cells.timers.sweeper import Sweeper
from tests.component.cells.timers.harness import CLOCK, Timers, soon
from tests.waiting import eventually


async def release(timers: Timers) -> int:
    result = await timers.queue.release(
        now_ms=CLOCK.now_ms(), shards=range(256), budget=100_000, fresh_after_ms=None
    )
    return result.total


async def overdue_jobs(timers: Timers, count: int) -> list[Member]:
    """Committed, not added, and overdue since the sweeper started."""
    members = timers.members(await timers.jobs(*(soon(n % 20) for n in range(count))))
    last = max(member.due_ms for member in members)
    await eventually(lambda: CLOCK.now_ms() > last)
    return members


async def started(timers: Timers, *, overdue_ms: int = 0) -> Sweeper:
    """A sweeper that has had its deep walk."""
    sweeper = timers.sweeper(overdue_ms=overdue_ms, sweep_seconds=0, deep_seconds=3600)
    await sweeper.look()
    return sweeper


async def test_the_first_look_is_deep(timers: Timers) -> None:
    jobs = await timers.jobs(*(soon(-n * 86_400_000) for n in range(1, 8)), soon(60_000))
    sweeper = timers.sweeper()
    assert await sweeper.look() == 7
    assert await sweeper.look() == 0
    assert await release(timers) == 7
    got = await timers.queue.pop(priority=2, limit=10)
    assert [m.parent_id for m in got] == [job.job_id for job in reversed(jobs[:7])]


async def test_what_waits_anywhere_is_left_alone_and_the_missing_are_added(timers: Timers) -> None:
    sweeper = await started(timers)
    tenant = timers.world.a.tenant_id
    members = await overdue_jobs(timers, 4)
    queued, held, in_bucket, _lost = members
    await timers.queue.put_rates({tenant: 1})
    for batch in ([queued], [held]):
        await timers.queue.add(batch)
        await release(timers)
    await timers.queue.add([in_bucket])
    assert await sweeper.look() == 1
    assert timers.metrics.stragglers._value.get() == 1
    # And so it stays, however often it walks.
    assert [await sweeper.look() for _ in range(3)] == [0, 0, 0]
    await timers.queue.put_rates({tenant: 1000})
    later = CLOCK.now_ms() + 1000
    await timers.queue.release(now_ms=later, shards=range(256), budget=100, fresh_after_ms=None)
    got = await timers.queue.pop(priority=2, limit=10)
    assert sorted(map(pack, got)) == sorted(map(pack, members))


async def test_only_what_is_overdue_for_long_enough(timers: Timers) -> None:
    sweeper = await started(timers, overdue_ms=60_000)
    await timers.jobs(soon(-59_000), soon(100))
    assert await sweeper.look() == 0


async def test_members_that_died_with_their_popper_come_back(timers: Timers) -> None:
    """They had been seen waiting before, so that the narrow sweep has passed them."""
    sweeper = await started(timers)
    members = await overdue_jobs(timers, 20)
    await timers.queue.add(members)
    await release(timers)
    assert await sweeper.look() == 0
    died = await timers.queue.pop(priority=2, limit=5)
    assert await sweeper.look() == 5
    await release(timers)
    again = await timers.queue.pop(priority=2, limit=100)
    assert sorted(map(pack, again)) == sorted(map(pack, members))
    assert {pack(m) for m in died} < {pack(m) for m in again}


async def test_a_large_backlog_is_walked_in_pieces(timers: Timers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BOUND", 100)
    monkeypatch.setattr(module, "PAGE", 50)
    sweeper = await started(timers)
    members = await overdue_jobs(timers, 1000)
    # All are lost. The narrow walk is bounded; the rounds find the rest.
    found, most, looks = 0, 0, 0
    while found < 1000:
        n = await sweeper.look()
        found, most, looks = found + n, max(most, n), looks + 1
        assert looks < 100
    assert most <= 250
    assert await timers.queue.restore(members) == 0
    # Claimed by now: the rounds come to an end.
    await timers.queue.put_rates({timers.world.a.tenant_id: 10_000})
    await release(timers)
    while popped := await timers.queue.pop(priority=2, limit=500):
        await timers.claim(popped)
    assert len(timers.claims) == 1000
    for _ in range(300):
        assert await sweeper.look() == 0
    assert sweeper._round is None


async def test_a_new_generation_is_swept_deeply_at_once(timers: Timers, valkey: object) -> None:
    sweeper = timers.sweeper(sweep_seconds=3600, deep_seconds=3600)
    await sweeper.look()
    await timers.jobs(soon(-100))
    assert await sweeper.look() == 0
    await timers.queue._valkey.command("DEL", timers.queue.keys.generation)
    timers.queue._generation_asked = 0.0
    assert await sweeper.look() == 1
