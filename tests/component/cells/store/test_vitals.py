"""What hurts a cell before anybody notices."""

from __future__ import annotations

import psycopg

from cells.domain.run import RunState
from cells.observability.metrics import Metrics
from cells.vitals import VitalSigns
from tests.component.cells.store.world import World, new_job, seconds_ago
from tests.waiting import eventually


async def test_vital_signs_are_shown(world: World, cell_database_url: str) -> None:
    claim = await world.claimed(new_job(seconds_ago(100)))
    await world.complete(claim, RunState.FAILED, fingerprint="f")
    await world.create(new_job(seconds_ago(50)))
    metrics = Metrics()
    signs = VitalSigns(world.store, metrics)

    def value(name: str) -> float:
        found = metrics.registry.get_sample_value(name)
        assert found is not None
        return found

    await signs.look()
    assert value("cell_shards_without_dispatcher") == 256
    assert value("cell_dead_letters_open") == 1
    assert 50 <= value("cell_oldest_timer_late_seconds") < 100
    assert value("cell_oldest_snapshot_seconds") < 1
    await world.store.share_shards(host_id=world.host_id)
    async with await psycopg.AsyncConnection.connect(cell_database_url) as holder:
        await holder.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await holder.execute(b"SELECT count(*) FROM jobs")

        async def grown() -> bool:
            await signs.look()
            return value("cell_oldest_snapshot_seconds") > 0.3

        await eventually(grown)
    await signs.look()
    assert value("cell_oldest_snapshot_seconds") < 0.3
    assert value("cell_shards_without_dispatcher") == 0
