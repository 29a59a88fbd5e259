"""Row writes in other regions: standbys times what was written here, and none of a single site."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator

import pytest
from psycopg import conninfo

from cells.contract import Metric
from cells.domain.ids import TENANT, encode
from cells.domain.replication import replicated_writes
from cells.domain.run import RunState
from cells.standby.cluster import slot_of
from deploy.engines import postgres_binaries
from tests.component.cells.store.sealing import levels, minutes_pass, sealed, work
from tests.component.cells.store.world import World, definition, new_job, seconds_ago
from tests.waiting import eventually


@pytest.fixture
async def sites(world: World) -> AsyncIterator[None]:
    """Slots of two other sites, as its keeper makes them; and others' that are no site's."""
    names = (slot_of("eu-2"), slot_of("us-1"), "backup")
    for name in names:
        await world.sql.execute(b"SELECT pg_create_physical_replication_slot(%s, false)", [name])
    yield
    for name in names:
        await world.sql.execute(
            b"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
            [name],
        )


@pytest.mark.parametrize("leased", [False, True])
async def test_writes_to_standbys_are_metered(world: World, sites: None, leased: bool) -> None:
    if leased:
        await world.sql.execute(b"UPDATE cell SET lease_until = clock_timestamp() + interval '1 hour'")
    standbys = 2 if leased else 0
    await work(world)
    kept = new_job(seconds_ago(2), definition(region_policy="SINGLE_REGION"))
    strict = new_job(seconds_ago(2), definition(region_policy="STRICT"))
    for job in (kept, strict):
        policy = job.definition.region_policy
        await world.complete(await world.claimed(job), RunState.SUCCEEDED, region_policy=policy)
    await minutes_pass(world)
    await world.store.seal_minutes()
    records = await sealed(world)
    attempts, written = (levels(records, m) for m in (Metric.RUN_ATTEMPTS, Metric.REPLICATED_WRITES))
    a, b = (encode(TENANT, fence.tenant_id) for fence in (world.a, world.b))
    assert attempts == {(a, "HOME_ASYNC"): 6, (b, "HOME_ASYNC"): 2, (a, "SINGLE_REGION"): 1, (a, "STRICT"): 1}
    wanted = {(a, "HOME_ASYNC"): 30, (b, "HOME_ASYNC"): 10, (a, "STRICT"): 5}
    assert written == ({key: n * standbys for key, n in wanted.items()} if standbys else {})
    if leased:
        # A site that is given up is written to no longer.
        await world.sql.execute(b"SELECT pg_drop_replication_slot(%s)", [slot_of("us-1")])
        await minutes_pass(world)
        assert await world.store.seal_minutes() > 0
        assert await world.value("SELECT standbys FROM cell") == 1


async def test_whatever_else_streams_is_no_other_region(world: World, cell_database_url: str) -> None:
    await world.sql.execute(b"UPDATE cell SET lease_until = clock_timestamp() + interval '1 hour'")
    with tempfile.TemporaryDirectory() as folder:
        standby = await asyncio.create_subprocess_exec(
            *(str(postgres_binaries() / "pg_receivewal"), "-D", folder),
            *("--dbname", conninfo.make_conninfo(cell_database_url, application_name="eu-2")),
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            await eventually(lambda: streams(world))
            await minutes_pass(world)
            assert await world.store.seal_minutes() > 0
            assert await world.value("SELECT standbys FROM cell") == 0
        finally:
            standby.terminate()
            await standby.wait()


async def streams(world: World) -> bool:
    return bool(await world.value("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"))


def test_steps_are_written_too_and_levels_are_not() -> None:
    assert replicated_writes(Metric.WORKFLOW_STEPS, "HOME_ASYNC", 2, standbys=2) == 12
    assert replicated_writes(Metric.WORKFLOW_STEPS, "SINGLE_REGION", 2, standbys=2) == 0
    assert replicated_writes(Metric.STORED_BYTE_MINUTES, "HOME_ASYNC", 10**9, standbys=2) == 0
    assert replicated_writes(Metric.API_REQUESTS, "", 10, standbys=2) == 0
