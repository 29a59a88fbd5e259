"""api_requests_per_second, with Valkey and without."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import redis.asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cells.domain.rates import gcra
from controlplane.routing.limits import _SCRIPT, Limiter
from deploy.engines import Valkey, new_password, running
from deploy.ports import Reservation
from tests.component.controlplane.routing.surroundings import OTHER_TENANT, TENANT, World, new_key, now_ms
from tests.waiting import eventually


async def test_above_its_rate_a_tenant_is_told_to_wait_and_others_are_not(world: World) -> None:
    key_id, other = new_key()
    world.add_key(key_id, other, tenant=OTHER_TENANT)
    world.place(TENANT, "cell-a", rate=5)

    async def slowed() -> bool:
        answer = await world.call("GET", "/v1/jobs")
        return answer.headers["RateLimit-Policy"] == '"api";q=5;w=1;qu="requests"'

    await eventually(slowed)
    answers = await asyncio.gather(*(world.call("GET", "/v1/jobs") for _ in range(20)))
    refused = [answer for answer in answers if answer.status == 429]
    assert 14 <= len(refused) <= 20
    for answer in refused:
        assert answer.json["scope"] == "tenant"
        assert answer.json["code"] == "QUOTA_EXCEEDED"
        assert answer.json["type"] == "urn:clockhouse:problem:quota-exceeded"
        assert answer.headers["Retry-After"] == "1"
        assert answer.headers["RateLimit"] == '"api";r=0;t=1'
    assert (await world.call("GET", "/v1/jobs", key=other)).status == 200


async def test_routers_share_one_allowance(valkey_url: str) -> None:
    limiters = [Limiter(valkey_url, now_ms=now_ms, timeout_s=5) for _ in range(2)]
    verdicts = await asyncio.gather(*(limiters[i % 2].check(TENANT, 10) for i in range(200)))
    passed = sum(verdict.allowed for verdict in verdicts)
    assert 10 <= passed <= 14
    assert [limiter.fallbacks for limiter in limiters] == [0, 0]
    assert not (await limiters[0].check(OTHER_TENANT, 0)).allowed
    for limiter in limiters:
        await limiter.close()


async def test_a_flushed_script_is_taught_again(valkey_url: str) -> None:
    limiter = Limiter(valkey_url, now_ms=now_ms, timeout_s=5)
    async with redis.asyncio.Redis.from_url(valkey_url) as client:
        assert (await limiter.check(TENANT, 10)).allowed
        await client.script_flush()
        assert (await limiter.check(TENANT, 10)).left == 8
        # A connection that was closed while nobody asked is opened again.
        await client.client_kill_filter(_type="normal", skipme=True)
        await eventually(lambda: limiter._line is not None and not limiter._line.is_open)
        assert (await limiter.check(TENANT, 10)).left == 7
    assert limiter.fallbacks == 0
    await limiter.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rate=st.integers(1, 2000), owed=st.floats(0, 3000))
def test_the_script_agrees_with_the_model(valkey_url: str, rate: int, owed: float) -> None:
    with redis.Redis.from_url(valkey_url) as client:
        seconds, micros = client.time()  # type: ignore[misc]
        tat = seconds * 1000 + micros / 1000 + owed
        client.set("k", f"{tat:.3f}", px=10_000)
        before = client.time()  # type: ignore[misc]
        ((allowed, wait, left, full),) = client.eval(_SCRIPT, 1, "k", rate, rate)  # type: ignore[misc]
        after = client.time()  # type: ignore[misc]
    early = gcra(tat, before[0] * 1000 + before[1] / 1000, rate, rate)
    late = gcra(tat, after[0] * 1000 + after[1] / 1000, rate, rate)
    assert early.allowed <= bool(allowed) <= late.allowed
    assert late.wait_ms - 1 <= wait <= early.wait_ms + 1
    assert 0 <= left <= rate
    assert full >= 0


async def test_without_valkey_nobody_waits(world: World, tmp_path: Path) -> None:
    port = Reservation()
    server = Valkey(tmp_path / "own-valkey", port=port.port, password=new_password(), durable=False)
    with running(server, tmp_path / "own-valkey.log"):
        async with redis.asyncio.Redis.from_url(server.url) as client:
            pid = (await client.info("server"))["process_id"]
        world.valkey_url = server.url
        await world.stop_router()
        await world.start_router()
        assert (await world.call("GET", "/v1/jobs")).status == 200
        assert b"router_limit_fallbacks 0.0" in (await world.call("GET", "/metrics")).body
        # A frozen server is worse than a dead one: it accepts and never answers.
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        answers = [await world.call("GET", "/v1/jobs") for _ in range(20)]
        assert [answer.status for answer in answers] == [200] * 20
        assert time.monotonic() - began < 1.5
        assert all("RateLimit" in answer.headers for answer in answers)
        world.place(TENANT, "cell-a", rate=5)

        async def limited() -> bool:
            answers = await asyncio.gather(*(world.call("GET", "/v1/jobs") for _ in range(20)))
            return any(answer.status == 429 for answer in answers)

        await eventually(limited)
        os.kill(pid, signal.SIGCONT)
        await eventually(lambda: "valkey is back" in world.log())
    port.release()
