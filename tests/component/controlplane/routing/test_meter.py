"""API requests, counted and shipped."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from controlplane.routing.control import ControlPlane
from controlplane.routing.meter import Meter
from tests.component.controlplane.routing.surroundings import OTHER_TENANT, TENANT, Django, World, now_ms
from tests.waiting import eventually

MINUTE = 60_000


class Clock:
    """A clock in a test's hands, in milliseconds."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000 // MINUTE * MINUTE

    def __call__(self) -> int:
        return self.now


@pytest.fixture
async def django():  # type: ignore[no-untyped-def]
    server = Django()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def control(django: Django):  # type: ignore[no-untyped-def]
    import aiohttp

    async with aiohttp.ClientSession() as session:
        yield ControlPlane(session, django.url, django.secret, now_ms=now_ms)


async def test_only_minutes_that_are_over_are_shipped_and_once(
    tmp_path: Path, django: Django, control: ControlPlane
) -> None:
    clock = Clock()
    meter = Meter(tmp_path, host="router-a", now_ms=clock)
    for _ in range(3):
        meter.count(TENANT, 7)
    meter.count(OTHER_TENANT, 1)
    assert await meter.ship(control) == 0
    clock.now += MINUTE
    meter.count(TENANT, 7)
    assert await meter.ship(control) == 2
    assert await meter.ship(control) == 0
    assert sorted(django.records.values()) == [1, 3]
    (record,) = [json.loads(key) for key, quantity in django.records.items() if quantity == 3]
    assert record == {
        "tenant_id": TENANT,
        "cell": "router",
        "store": 0,
        "epoch": 7,
        "host": "router-a",
        "minute": "2027-01-15T08:00:00Z",
        "metric": "api_requests",
        "region_policy": "",
    }
    assert meter.unshipped == 1


async def test_a_clock_that_steps_back_opens_no_sealed_minute(
    tmp_path: Path, django: Django, control: ControlPlane
) -> None:
    clock = Clock()
    meter = Meter(tmp_path, host="router-a", now_ms=clock)
    meter.count(TENANT, 7)
    clock.now += MINUTE
    assert await meter.ship(control) == 1
    clock.now -= MINUTE
    meter.count(TENANT, 7)
    assert await meter.ship(control) == 0
    clock.now += 2 * MINUTE
    assert await meter.ship(control) == 1
    assert len(django.records) == 2


async def test_what_was_not_acknowledged_is_shipped_by_the_next_incarnation(
    tmp_path: Path, django: Django, control: ControlPlane
) -> None:
    clock = Clock()
    first = Meter(tmp_path, host="router-a", now_ms=clock)
    first.count(TENANT, 7)
    first.flush()
    await django.stop()
    second = Meter(tmp_path, host="router-b", now_ms=clock)
    second.count(TENANT, 7)
    assert await second.ship(control) == 0
    await django.start()
    assert await second.ship(control) == 1  # of the first: nothing counts for it any more
    clock.now += MINUTE
    assert await second.ship(control) == 1
    hosts = {json.loads(key)["host"]: quantity for key, quantity in django.records.items()}
    assert hosts == {"router-a": 1, "router-b": 1}
    # The first is over and Django knows; of the second there is a spool as long as it lives.
    assert [path.stem for path in (tmp_path / "meters").glob("*.json")] == ["router-b"]


async def test_django_hears_how_far_each_incarnation_is_answered_for(
    tmp_path: Path, django: Django, control: ControlPlane
) -> None:
    clock = Clock()
    first = Meter(tmp_path, host="router-a", now_ms=clock)
    first.flush()  # it counted nothing, and is killed
    second = Meter(tmp_path, host="router-b", now_ms=clock)
    second.count(TENANT, 7)
    await second.ship(control)
    assert django.incarnations == {
        "router-a": {"host": "router-a", "sealed_until": "2027-01-15T08:00:00Z", "ended": True},
        "router-b": {"host": "router-b", "sealed_until": "2027-01-15T08:00:00Z", "ended": False},
    }
    django.calls.clear()
    await second.ship(control)
    assert django.calls == []  # no news
    clock.now += MINUTE
    django.verdict = "not_placed"
    second.count(TENANT, 7)
    await second.ship(control)
    assert django.calls[1:] == []  # what is not taken yet holds its word back
    clock.now += MINUTE
    django.verdict = "accepted"
    assert await second.ship(control) == 2
    assert django.incarnations["router-b"]["sealed_until"] == "2027-01-15T08:02:00Z"


async def test_a_router_that_stops_ships_its_last_minute_and_is_over(
    tmp_path: Path, django: Django, control: ControlPlane
) -> None:
    meter = Meter(tmp_path, host="router-a", now_ms=Clock())
    meter.count(TENANT, 7)
    stop = asyncio.Event()
    stop.set()
    await meter.run(stop, control)
    assert list(django.records.values()) == [1]
    assert django.incarnations["router-a"]["ended"] is True
    assert list((tmp_path / "meters").glob("*.json")) == []


async def test_a_router_that_stops_alone_leaves_its_last_minute_to_the_next(
    tmp_path: Path, django: Django, control: ControlPlane
) -> None:
    await django.stop()
    meter = Meter(tmp_path, host="router-a", now_ms=Clock())
    meter.count(TENANT, 7)
    stop = asyncio.Event()
    stop.set()
    await meter.run(stop, control)
    await django.start()
    assert await Meter(tmp_path, host="router-b", now_ms=Clock()).ship(control) == 1
    assert django.incarnations["router-a"]["ended"] is True


async def test_a_refused_record_is_set_aside_and_an_unplaced_one_kept(
    tmp_path: Path, django: Django, control: ControlPlane
) -> None:
    clock = Clock()
    meter = Meter(tmp_path, host="router-a", now_ms=clock)
    meter.count(TENANT, 7)
    clock.now += MINUTE
    django.verdict = "not_placed"
    assert await meter.ship(control) == 0
    assert meter.unshipped == 1
    django.verdict = "conflict"
    assert await meter.ship(control) == 0  # it is asked for again a minute later
    clock.now += MINUTE
    assert await meter.ship(control) == 1
    assert meter.unshipped == 0
    (line,) = (tmp_path / "meters" / "refused.jsonl").read_text().splitlines()
    assert json.loads(line)["result"] == "conflict"


async def test_a_record_that_django_cannot_read_stands_in_nobodys_way(
    tmp_path: Path, django: Django, control: ControlPlane
) -> None:
    clock = Clock()
    meter = Meter(tmp_path, host="router-a", now_ms=clock)
    good = [f"tnt_{n:026}" for n in range(9)]
    for tenant in (*good[:4], "nobody", *good[4:]):
        meter.count(tenant, 7)
    clock.now += MINUTE
    django.unreadable = "nobody"
    assert await meter.ship(control) == 10
    assert meter.unshipped == 0
    assert {json.loads(key)["tenant_id"] for key in django.records} == set(good)
    (line,) = (tmp_path / "meters" / "refused.jsonl").read_text().splitlines()
    assert json.loads(line)["result"] == "malformed"
    assert json.loads(line)["record"]["tenant_id"] == "nobody"


async def test_thousands_of_unplaced_records_do_not_block_newer_ones(
    tmp_path: Path, django: Django, control: ControlPlane
) -> None:
    clock = Clock()
    meter = Meter(tmp_path, host="router-a", now_ms=clock)
    for n in range(6_000):
        meter.count(f"tnt_{n:026}", 7)
    clock.now += MINUTE
    django.verdict = "not_placed"
    assert await meter.ship(control) == 0
    django.calls.clear()
    assert await meter.ship(control) == 0  # they have their minute; nobody is asked twice a second
    assert django.calls == []
    newer = f"tnt_{'z' * 26}"
    meter.count(newer, 7)
    clock.now += MINUTE
    django.placed = {newer}
    assert await meter.ship(control) == 1
    assert meter.unshipped == 6_000
    django.verdict = "accepted"
    clock.now += MINUTE
    assert await meter.ship(control) == 6_000


async def test_a_killed_router_loses_at_most_its_last_second(world: World) -> None:
    for _ in range(5):
        await world.call("GET", "/v1/jobs")
    spools = world.folder / "router" / "meters"

    def spooled() -> int:
        return sum(
            row[3] for path in spools.glob("*.json") for row in json.loads(path.read_bytes())["counts"]
        )

    await eventually(lambda: spooled() == 5)
    assert world.process is not None
    world.process.kill()
    await world.process.wait()
    await world.start_router()
    await eventually(lambda: sum(world.django.records.values()) == 5)
    await asyncio.sleep(0)
