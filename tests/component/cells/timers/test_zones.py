"""Instants of other time-zone data are brought to this process's, tenant by tenant."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from cells.domain.job import Schedule, ScheduleType
from cells.domain.zones import TZDATA_VERSION
from cells.execution.rescheduling import Rescheduling
from cells.observability.metrics import Metrics
from tests.component.cells.store.world import definition, new_job
from tests.component.cells.timers.harness import CLOCK, Lease, Timers

RIGHT = datetime(2027, 1, 15, 17, 0, tzinfo=UTC)  # noon in New York
NOON = Schedule(type=ScheduleType.CRON, cron="0 12 * * *", time_zone="America/New_York")


async def test_a_stuck_seal_holds_up_nobody_and_is_told(timers: Timers) -> None:
    world, metrics = timers.world, Metrics()
    wrong = RIGHT - timedelta(hours=1)
    sealed, free = new_job(wrong, definition(schedule=NOON)), new_job(wrong, definition(schedule=NOON))
    await world.create(sealed)
    await world.create(free, fence=world.b)
    await world.sql.execute(
        "INSERT INTO tenant_tzdata (tenant_id, version) SELECT tenant_id, '2000a' FROM tenants"
    )
    await world.sql.execute("UPDATE tenants SET state = 'SEALED' WHERE tenant_id = %s", (world.a.tenant_id,))
    work = Rescheduling(
        timers.store,
        timers.queue,
        Lease(world.host_id),
        CLOCK,
        metrics,
        kept=timedelta(days=30),  # type: ignore[arg-type]
    )
    while await work.follow_zones():
        await asyncio.sleep(0)
    assert (await world.job(free, fence=world.b)).next_run_at == RIGHT
    assert (await world.job(sealed)).next_run_at == wrong
    behind = metrics.gauge("timers_other_tzdata_tenants", "", ["why"])
    assert (behind.labels("sealed")._value.get(), behind.labels("older")._value.get()) == (1, 1)
    assert await world.value("SELECT tzdata_version FROM cell") != TZDATA_VERSION

    await world.sql.execute("UPDATE tenants SET state = 'ACTIVE' WHERE tenant_id = %s", (world.a.tenant_id,))
    for _ in range(2):
        work._look_at = 0.0
        while await work.follow_zones():
            await asyncio.sleep(0)
    assert (await world.job(sealed)).next_run_at == RIGHT
    assert behind.labels("sealed")._value.get() == 0
    assert await world.value("SELECT tzdata_version FROM cell") == TZDATA_VERSION
