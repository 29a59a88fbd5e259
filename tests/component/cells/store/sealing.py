"""Work that is metered, and minutes that are sealed."""

from __future__ import annotations

from datetime import timedelta

from cells.contract import MeterRecord, Metric
from cells.domain.run import RunState
from tests.component.cells.store.world import World, completion, member_of, new_job, seconds_ago


async def minutes_pass(world: World, minutes: int = 2) -> None:
    """Date back what was journalled and the cell's marks, as if time had passed since."""
    back = timedelta(minutes=minutes)
    await world.sql.execute(b"UPDATE journal SET at = at - %s", [back])
    await world.sql.execute(
        b"UPDATE cell SET sealed_until = sealed_until - %s, metered_until = metered_until - %s", [back, back]
    )


async def sealed(world: World) -> list[MeterRecord]:
    return list(await world.store.unshipped_meters(cell="cell-1", limit=10_000))


def totals(records: list[MeterRecord], metric: Metric) -> dict[str, int]:
    found: dict[str, int] = {}
    for r in records:
        if r.metric is metric:
            found[r.tenant_id] = found.get(r.tenant_id, 0) + r.quantity
    return found


def levels(records: list[MeterRecord], metric: Metric) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for record in records:
        if record.metric is metric:
            key = (record.tenant_id, record.region_policy)
            found[key] = found.get(key, 0) + record.quantity
    return found


async def work(world: World) -> None:
    """5 runs of a (one fails, one retries and succeeds), 2 of b."""
    for fence, n in ((world.a, 5), (world.b, 2)):
        jobs = [new_job(seconds_ago(2)) for _ in range(n)]
        await world.create(*jobs, fence=fence)
        claims = (await world.claim(*(member_of(job, fence.tenant_id) for job in jobs))).claims
        states = [RunState.FAILED, RunState.RETRY_WAIT] if n == 5 else []
        states += [RunState.SUCCEEDED] * (n - len(states))
        applied = await world.store.complete(
            [completion(c, s, egress_bytes=100) for c, s in zip(claims, states, strict=True)],
            host_id=world.host_id,
        )
        for claim in (await world.claim(*applied.retries)).claims:
            await world.complete(claim, RunState.SUCCEEDED, egress_bytes=100)
