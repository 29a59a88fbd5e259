"""What a tenant's runs waited for, and who was served meanwhile; how busy a cell is."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from cells.contract import Scope
from cells.domain.run import RunState
from tests.component.cells.api.harness import Cell
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

TARGET = "tgt_email"
PAST = {"type": "ONCE", "run_at": "2026-01-05T09:00:00Z"}
DAY = "since=2026-01-05T00:00:00Z&until=2026-01-06T00:00:00Z"


async def _ran(cell: Cell, runs: int) -> None:
    for _ in range(runs):
        job = await cell.api.job(TARGET, schedule=PAST)
        (claim,) = await cell.claim(job["job_id"])
        await cell.complete(claim, RunState.SUCCEEDED)


def _parts(told: Any) -> dict[str, int]:
    return {part["part"]: part["ms"] for part in told["parts"]}


async def test_a_period_is_told_part_by_part(running: Cell) -> None:
    await running.api.target(target_id=TARGET)
    nothing = await running.api.get("/v1/delays")
    assert (nothing["runs"], nothing["waited_ms"], nothing["mean_ms"]) == (0, 0, None)
    assert nothing["sentence"] == "No run of this time has begun."
    neighbour = running.for_tenant()
    await neighbour.place(neighbour.api.tenant)
    await neighbour.api.target(target_id=TARGET)
    # Both in one minute, so that what began there is known whole.
    await eventually(lambda: datetime.now(UTC).second < 50, timeout=30)
    await _ran(running, 1)
    await _ran(neighbour, 3)

    internal = running.api.with_scopes(Scope.INTERNAL)
    internal.actor = "service:control-plane"
    asked = itertools.count()

    async def folded() -> Any:
        await running.store.fold_stats()
        # Another period each time: what was told of one is kept for a while.
        day = f"since=2026-01-05T00:00:00Z&until=2026-01-06T00:{next(asked) // 60:02}:{next(asked) % 60:02}Z"
        told = await internal.get(f"/internal/tenants/{running.api.tenant_text}/delays?{day}")
        return told if told["crowded_minutes"] and _parts(told)["own_queue"] else None

    told = await eventually(folded)
    parts = _parts(told)
    assert (told["runs"], told["complete"]) == (1, True)
    assert told["waited_ms"] == sum(parts.values())
    # It was due as it was made, long behind its instant; its neighbour ran at least three times.
    waited = parts["own_queue"] + parts["others"]
    assert parts["others"] >= int(waited * 0.74)
    assert told["crowded_minutes"][0]["others_ms"] == parts["others"]
    assert (parts["window"], parts["retries"], parts["quota"], parts["workers"]) == (0, 0, 0, 0)

    # The tenant itself is told coarsely, and the same again for a minute.
    mine = await running.api.get(f"/v1/delays?{DAY}")
    assert mine["waited_ms"] == told["waited_ms"]
    assert mine["crowded_minutes"][0]["others_share"] in (None, 50, 60, 70, 80, 90, 100)
    await _ran(running, 1)
    assert await running.api.get(f"/v1/delays?{DAY}") == mine


async def test_what_it_refuses(running: Cell) -> None:
    api = running.api
    await api.problem("GET", "/v1/delays?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z",
                      status=422, code="INVALID")  # fmt: skip
    await api.problem("GET", "/v1/delays?since=2026-01-01T00:00:00Z&until=2026-01-09T00:00:00Z",
                      status=422, code="INVALID")  # fmt: skip
    denied = api.with_scopes(Scope.WORKERS)
    await denied.problem("GET", "/v1/delays", status=403, code="FORBIDDEN")


async def test_the_cell_tells_its_load_and_its_unshipped_meters(own: Cell) -> None:
    mine = own.for_tenant()
    await mine.place(mine.api.tenant)
    internal = mine.api.with_scopes(Scope.INTERNAL)
    internal.actor = "service:control-plane"
    idle = await internal.get("/internal/status")
    assert idle["load"] == {"minutes": 5, "runs_per_second": 0.0, "tenants": []}
    assert idle["meters"]["unshipped"] == 0
    await mine.api.target(target_id=TARGET)
    await _ran(mine, 3)

    async def counted() -> Any:
        await own.store.fold_stats()
        own.clock.ahead_ms = 60_000  # the minute is over
        found = await internal.get("/internal/status")
        return found if found["load"]["tenants"] else None

    busy = await eventually(counted)
    (tenant,) = busy["load"]["tenants"]
    assert tenant["tenant_id"] == mine.api.tenant_text
    assert tenant["runs_per_second"] == pytest.approx(3 / 300)
    assert busy["load"]["runs_per_second"] == pytest.approx(3 / 300)
    assert busy["meters"]["unsealed"] is True
