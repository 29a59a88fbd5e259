"""Shipping over real HTTP from a real store: never lost, never added, refusals kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from cells.clock import SystemClock
from cells.contract import Metric
from cells.domain.ids import TENANT, encode
from cells.domain.run import RunState
from cells.metering.meter import MeterService
from cells.metering.receiver import Away, Receiver
from cells.metering.shipper import Shipper
from cells.observability.metrics import Metrics
from cells.records import Unconfirmed
from tests.component.cells.metering.ledger import CELL, KEY, Ledger
from tests.component.cells.store.world import World, new_job, seconds_ago
from tests.waiting import eventually


async def fill(world: World, records: int, *, host: str = "host-1", quantity: int = 7) -> None:
    """Sealed minutes of tenant a, as sealing writes them."""
    await world.sql.execute(
        b"""INSERT INTO meter_minutes (tenant_id, store, epoch, host, minute, metric, region_policy, quantity)
            SELECT %s, 0, 3, %s, date_trunc('minute', now()) - n * interval '1 minute', 'job_runs',
                   'HOME_ASYNC', %s
            FROM generate_series(1, %s) n""",
        (world.a.tenant_id, host, quantity, records),
    )


async def unshipped(world: World) -> int:
    return int(
        await world.value("SELECT count(*) FROM meter_minutes WHERE shipped_at IS NULL AND refused IS NULL")
    )


@asynccontextmanager
async def shipping(
    world: World, ledger: Ledger, *, secret: bytes = KEY, batch: int = 5000, metrics: Metrics | None = None
) -> AsyncIterator[Shipper]:
    clock = SystemClock()
    async with Receiver(ledger.url, cell=CELL, kid=CELL, secret=secret, clock=clock) as receiver:
        yield Shipper(world.store, receiver, clock, metrics or Metrics(), cell=CELL, batch=batch)


def meter(world: World, url: str, metrics: Metrics | None = None) -> MeterService:
    return MeterService(
        world.store, SystemClock(), metrics or Metrics(), host_id=lambda: world.host_id, cell=CELL,
        control_url=url, kid=CELL, secret=KEY, interval=0.02, pause=lambda failures: 0.02,
    )  # fmt: skip


@asynccontextmanager
async def running(*services: MeterService) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(service.run(stop))
        try:
            yield
        finally:
            stop.set()


async def test_a_batch_is_signed_taken_and_marked(world: World, ledger: Ledger) -> None:
    await fill(world, 5)
    async with shipping(world, ledger) as shipper:
        assert not await shipper.ship()
        assert not await shipper.ship()  # nothing is left but to say so
        assert not await shipper.ship()  # nor that
    assert await unshipped(world) == 0
    assert len(ledger.calls) == 1
    said = {(caller.actor, caller.scopes, caller.tenant_id) for caller in ledger.callers}
    assert said == {(f"cell:{CELL}", ("internal",), "")}
    assert len(ledger.callers) == 2
    record = ledger.calls[0][0]
    assert record.tenant_id == encode(TENANT, world.a.tenant_id)
    assert (record.cell, record.store, record.epoch, record.host) == (CELL, 0, 3, "host-1")
    assert (record.metric, record.region_policy, record.quantity) == (Metric.JOB_RUNS, "HOME_ASYNC", 7)
    assert record.minute.endswith(":00Z")
    minutes = [r.minute for r in ledger.calls[0]]
    assert minutes == sorted(minutes)  # oldest first


async def test_a_cell_with_other_sites_sends_what_one_of_them_has(world: World, ledger: Ledger) -> None:
    await fill(world, 5)
    world.store._leased = True
    await world.sql.execute(b"UPDATE cell SET lease_until = clock_timestamp() + interval '1 hour'")
    async with shipping(world, ledger) as shipper:
        with pytest.raises(Unconfirmed, match="no other region"):
            await shipper.ship()
        assert (ledger.calls, await unshipped(world)) == ([], 5)
        world.store._leased = False
        await shipper.ship()
    assert await unshipped(world) == 0


async def test_many_records_go_in_bounded_calls(world: World, ledger: Ledger) -> None:
    await fill(world, 5001)
    async with shipping(world, ledger) as shipper:
        assert await shipper.ship()
        assert not await shipper.ship()
    assert [len(call) for call in ledger.calls] == [5000, 1]
    assert await unshipped(world) == 0


async def test_a_lost_answer_adds_nothing(world: World, ledger: Ledger) -> None:
    await fill(world, 10)
    ledger.lose_answers = 1
    async with shipping(world, ledger) as shipper:
        with pytest.raises(Away):
            await shipper.ship()
        assert await unshipped(world) == 10
        assert ledger.total == 70
        await shipper.ship()
    assert await unshipped(world) == 0
    assert ledger.total == 70
    assert len(ledger.calls) == 2


#: What no receiver of ours answers to a batch of three, and how many of it that acknowledges.
NO_ANSWERS = {
    "503": (web.json_response, {"data": {}, "status": 503}, 0),
    "401": (web.json_response, {"data": {}, "status": 401}, 0),
    "403": (web.json_response, {"data": {}, "status": 403}, 0),
    "429": (web.json_response, {"data": {}, "status": 429}, 0),
    "a redirect": (web.Response, {"status": 302, "headers": {"Location": "http://127.0.0.1:1/"}}, 0),
    "too few": (web.json_response, {"data": {"results": ["accepted"]}}, 0),
    "no list": (web.json_response, {"data": {"results": "accepted"}}, 0),
    "html": (web.Response, {"text": "<html>", "content_type": "text/html"}, 0),
    "too long": (web.Response, {"body": b"x" * (1 << 21)}, 0),
    "unknown words": (web.json_response, {"data": {"results": ["accepted", "too_new", "later"]}}, 1),
}


async def test_answers_that_acknowledge_nothing(world: World, ledger: Ledger) -> None:
    await fill(world, 3)
    async with shipping(world, ledger) as shipper:
        for name, (make, arguments, acknowledged) in NO_ANSWERS.items():
            ledger.fault = lambda make=make, arguments=arguments: make(**arguments)
            with pytest.raises(Away):
                await shipper.ship()
            assert await unshipped(world) == 3 - acknowledged, name
        ledger.fault = lambda: None
        await shipper.ship()
    assert await unshipped(world) == 0
    assert await world.value("SELECT count(*) FROM meter_minutes WHERE refused IS NOT NULL") == 0


async def test_nobody_listens(world: World, ledger: Ledger) -> None:
    await fill(world, 3)
    clock = SystemClock()
    async with Receiver("http://127.0.0.1:1", cell=CELL, kid=CELL, secret=KEY, clock=clock) as receiver:
        with pytest.raises(Away):
            await Shipper(world.store, receiver, clock, Metrics(), cell=CELL).ship()
    assert await unshipped(world) == 3


async def test_refused_records_stay_with_the_reason(world: World, ledger: Ledger) -> None:
    await fill(world, 3)
    async with shipping(world, ledger) as shipper:
        await shipper.ship()
    before = dict(ledger.taken)
    # The same keys with another content: something here is wrong, and must not reach an invoice.
    await world.sql.execute(b"UPDATE meter_minutes SET quantity = 8, shipped_at = NULL WHERE minute < now()")
    await fill(world, 1, host="host-2")
    metrics = Metrics()
    async with shipping(world, ledger, metrics=metrics) as shipper:
        await shipper.ship()
        await shipper.ship()
    assert len(ledger.calls) == 2  # refused ones are not sent again
    rows = await world.rows("SELECT host, refused, shipped_at IS NULL FROM meter_minutes ORDER BY host")
    assert rows == [("host-1", "conflict", True)] * 3 + [("host-2", None, False)]
    assert {key: ledger.taken[key] for key in before} == before
    assert b'meter_records_refused_total{reason="conflict"} 3.0' in metrics.render()
    assert b"meter_records_shipped_total 1.0" in metrics.render()


async def test_a_tenant_that_never_lived_here(world: World, ledger: Ledger) -> None:
    await fill(world, 2)
    ledger.strangers.add(encode(TENANT, world.a.tenant_id))
    async with shipping(world, ledger) as shipper:
        await shipper.ship()
    assert await world.rows("SELECT DISTINCT refused FROM meter_minutes") == [("not_placed",)]
    assert ledger.taken == {}


async def test_one_malformed_record_does_not_hold_up_the_others(world: World, ledger: Ledger) -> None:
    await fill(world, 30)
    await fill(world, 1, host="odd")
    ledger.poison.add("odd")
    async with shipping(world, ledger) as shipper:
        await shipper.ship()
    assert await unshipped(world) == 0
    assert ledger.total == 30 * 7
    ((host, reason),) = await world.rows("SELECT host, refused FROM meter_minutes WHERE refused IS NOT NULL")
    assert host == "odd"
    assert reason.startswith("rejected: 422")


async def test_from_a_run_to_the_ledger(world: World, ledger: Ledger) -> None:
    """Counted with the completion, folded, sealed, shipped: twice the role, once the figure."""
    for _ in range(3):
        claim = await world.claimed(new_job(seconds_ago(5)))
        assert await world.complete(claim, RunState.SUCCEEDED)
    # As if that had been two minutes ago.
    await world.sql.execute(b"UPDATE journal SET at = at - interval '2 minutes'")
    await world.sql.execute(b"UPDATE cell SET metered_until = metered_until - interval '4 minutes'")
    await world.sql.execute(b"UPDATE cell SET sealed_until = sealed_until - interval '4 minutes'")
    metrics = Metrics()
    async with running(meter(world, ledger.url, metrics), meter(world, ledger.url)):

        def runs() -> int:
            return sum(r.quantity for r in ledger.taken.values() if r.metric is Metric.JOB_RUNS)

        await eventually(lambda: runs() == 3)
        await eventually(lambda: _all_shipped(world))
        succeeded = "SELECT coalesce(sum(succeeded), 0)::int FROM run_stats"
        await eventually(lambda: _is(world, succeeded, 3))
    assert runs() == 3
    assert {r.host for r in ledger.taken.values() if r.metric is Metric.JOB_RUNS} == {world.host_name}


async def test_an_outage_of_the_control_plane_is_waited_out(world: World, ledger: Ledger) -> None:
    await fill(world, 10)
    ledger.fault = lambda: web.json_response({}, status=503)
    metrics = Metrics()
    async with running(meter(world, ledger.url, metrics)):
        await eventually(lambda: len(ledger.callers) >= 5)
        assert await unshipped(world) == 10
        ledger.fault = lambda: None
        await eventually(lambda: _all_shipped(world))
    assert ledger.total == 70
    assert metrics.registry.get_sample_value("meter_shipping_failures_total") >= 5


async def test_an_outage_of_the_store_is_waited_out(world: World, ledger: Ledger) -> None:
    await fill(world, 10)
    async with running(meter(world, ledger.url)):
        await eventually(lambda: _all_shipped(world))
        await world.sql.execute(
            b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            b" WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await fill(world, 10, host="host-2")
        await eventually(lambda: _all_shipped(world))
    assert ledger.total == 140


async def test_without_a_control_plane_minutes_wait_sealed(world: World, ledger: Ledger) -> None:
    await fill(world, 3)
    await world.sql.execute(b"UPDATE cell SET metered_until = metered_until - interval '2 minutes'")
    metrics = Metrics()
    async with running(meter(world, "", metrics)):
        await eventually(lambda: metrics.registry.get_sample_value("meter_minutes_sealed_total") >= 2)
    assert await unshipped(world) >= 3
    assert ledger.callers == []


async def test_the_end_does_not_wait_for_a_silent_control_plane(
    world: World, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cells.metering.meter.LAST_CALL_SECONDS", 0.05)
    await fill(world, 3)
    ledger.silent = True
    async with asyncio.timeout(5), running(meter(world, ledger.url)):
        await eventually(lambda: ledger.calls)
    assert await unshipped(world) == 3  # sent again by whoever comes next
    ledger.silent = False
    async with shipping(world, ledger) as shipper:
        await shipper.ship()
    assert await unshipped(world) == 0
    assert ledger.total == 21


async def _all_shipped(world: World) -> bool:
    return await unshipped(world) == 0


async def _is(world: World, query: str, value: object) -> bool:
    return bool(await world.value(query) == value)


async def test_how_far_is_told_once_all_of_it_is_acknowledged(world: World, ledger: Ledger) -> None:
    await fill(world, 3)
    async with shipping(world, ledger) as shipper:
        await shipper.ship()
        oldest = ledger.calls[0][0].minute
        # Before anything was acknowledged, there was nothing more to say.
        assert [told.sealed_until for told in ledger.told] == [oldest]
        await shipper.ship()
        await shipper.ship()
    until = await world.value('SELECT to_char(metered_until, \'YYYY-MM-DD"T"HH24:MI:00"Z"\') FROM cell')
    assert [(told.store, told.epoch, told.sealed_until) for told in ledger.told] == [
        (0, 1, oldest), (0, 1, until),
    ]  # fmt: skip


async def test_no_record_is_refused_for_the_word_that_came_with_it(world: World, ledger: Ledger) -> None:
    """A cell whose clock is ahead of the control plane's."""
    await fill(world, 4)
    ledger.late_word = True
    async with shipping(world, ledger) as shipper:
        await shipper.ship()
        assert await unshipped(world) == 0
        assert ledger.total == 28
        with pytest.raises(Away):
            await shipper.ship()
        ledger.late_word = False
        await shipper.ship()
    assert len(ledger.told) == 1
