"""Dead letters tried again: exactly those chosen, once each, canaries first, at their pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from cells.domain import ids
from cells.domain.run import RunState
from cells.execution.operations import Operations
from cells.observability.metrics import Metrics
from cells.ports import Claim
from tests.component.cells.api.harness import Cell
from tests.component.cells.api.waiting import waiting_run
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

TARGET = "tgt_email"


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def nothing_left(running: Cell) -> AsyncIterator[None]:
    """What a test began and did not end would be worked on by the others' workers."""
    yield
    for item in (await running.api.get("/v1/redrives?state=RUNNING"))["items"]:
        await running.api.ok("POST", f"/v1/redrives/{item['redrive_id']}:stop")


def worker(cell: Cell) -> Operations:
    return Operations(cell.store, cell.queue, cell.host, cell.clock, Metrics())


async def due(cell: Cell, count: int, target: str = TARGET) -> list[Claim]:
    """Claims of that many runs started by hand."""
    job = await cell.api.job(target)
    runs = [await cell.api.ok("POST", f"/v1/jobs/{job['job_id']}:trigger", status=201) for _ in range(count)]
    return list(await claimed(cell, [run["run_id"] for run in runs], series=1))


async def claimed(cell: Cell, run_ids: list[str], *, series: int) -> list[Claim]:
    members = [waiting_run(run_id, cell.api.tenant, series=series) for run_id in run_ids]
    return list(await cell.claim_members(members))


async def dead(cell: Cell, count: int, target: str = TARGET) -> list[str]:
    """Run ids of that many dead letters that failed alike."""
    claims = await due(cell, count, target)
    assert len(claims) == count
    for claim in claims:
        await cell.complete(claim, RunState.FAILED)
    return [ids.run_id(claim.key) for claim in claims]


async def redriven(cell: Cell) -> list[str]:
    """Runs that wait in a second series."""
    items = (await cell.api.get("/v1/runs?state=DUE&limit=200"))["items"]
    return sorted(item["run_id"] for item in items if item["series"] == 2)


async def stepped(cell: Cell, redrive: Any, **until: Any) -> Any:
    """Work until the redrive says this."""

    async def said() -> Any:
        await worker(cell).step()
        found = await cell.api.get(f"/v1/redrives/{redrive['redrive_id']}")
        return found if until.items() <= found.items() else None

    return await eventually(said)


async def ended(cell: Cell, run_ids: list[str], state: RunState) -> None:
    for claim in await claimed(cell, run_ids, series=2):
        assert (claim.series, claim.attempt) == (2, 1)
        await cell.complete(claim, state)


async def test_canaries_go_first_and_the_rest_follows_when_they_succeed(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    letters = await dead(running, 14)
    chosen = await api.ok(
        "POST", "/v1/dlq:redrive", {"filter": {"target_id": TARGET}, "dry_run": True}, status=201
    )
    assert (chosen["count"], len(chosen["sample"]), chosen["filter"]) == (14, 10, {"target_id": TARGET})
    assert await redriven(running) == []
    later = await dead(running, 1)
    by_hash = {"selection_id": chosen["selection_id"], "hash": chosen["hash"], "max_per_second": 1000}
    begun = await api.ok("POST", "/v1/dlq:redrive", by_hash, status=202)
    assert (begun["state"], begun["stage"], begun["total"], begun["hash"]) == (
        "RUNNING", "first", 14, chosen["hash"],
    )  # fmt: skip
    assert (await api.ok("POST", "/v1/dlq:redrive", by_hash))["redrive_id"] == begun["redrive_id"]

    await stepped(running, begun, processed=1)
    for _ in range(5):
        await worker(running).step()
    first = await redriven(running)
    assert len(first) == 1
    await ended(running, first, RunState.SUCCEEDED)
    await stepped(running, begun, processed=11, stage="ten")
    ten = await redriven(running)
    assert len(ten) == 10
    await ended(running, ten, RunState.SUCCEEDED)
    summary = await stepped(running, begun, state="DONE")
    assert (summary["done"], summary["unchanged"], summary["failed"], summary["stage"]) == (14, 0, 0, None)
    assert summary["runs"] == {"SUCCEEDED": 11, "DUE": 3}
    rest = await redriven(running)
    assert sorted([*first, *ten, *rest]) == sorted(letters)
    left = await api.get("/v1/dlq")
    assert [item["run_id"] for item in left["items"]] == later
    read = await api.get(f"/v1/dlq/{letters[0]}")
    assert (read["state"], read["run"]["series"], read["run"]["idempotency_key"]) == (
        "REDRIVEN",
        2,
        letters[0],
    )
    listed = await api.get("/v1/redrives")
    assert [item["redrive_id"] for item in listed["items"]] == [begun["redrive_id"]]
    assert (await api.get("/v1/operations"))["items"] == []


@pytest.mark.parametrize("verb", ["redrive", "purge"])
async def test_a_key_stands_for_one_request(running: Cell, verb: str) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    path, letters = f"/v1/dlq:{verb}", await dead(running, 3)

    def keyed(name: str) -> dict[str, str]:
        return {"Idempotency-Key": name}

    async def reused(body: Any, name: str) -> None:
        await api.problem("POST", path, body, status=422, code="IDEMPOTENCY_KEY_REUSED", headers=keyed(name))

    one, other = ({"filter": {"run_ids": [letter]}} for letter in letters[:2])
    begun = await api.ok("POST", path, one, status=202, headers=keyed("filter"))
    assert (await api.ok("POST", path, one, headers=keyed("filter")))["redrive_id"] == begun["redrive_id"]
    await reused(other, "filter")
    await reused(one | {"dry_run": True}, "filter")

    first, second = [
        await api.ok("POST", path, {"filter": {"run_ids": [letter]}, "dry_run": True}, status=201)
        for letter in letters[1:]
    ]
    looked = {"selection_id": first["selection_id"], "hash": first["hash"]}
    begun = await api.ok("POST", path, looked, status=202, headers=keyed("looked"))
    again = await api.ok("POST", path, looked, headers=keyed("looked"))
    assert again["redrive_id"] == begun["redrive_id"]
    await reused({"selection_id": second["selection_id"], "hash": second["hash"]}, "looked")
    await reused(looked, "filter")
    assert len((await api.get("/v1/redrives"))["items"]) == 2


async def test_it_stops_by_itself_when_the_first_fails_as_before(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    await dead(running, 20)
    begun = await api.ok("POST", "/v1/dlq:redrive", {"filter": {"target_id": TARGET}}, status=202)
    await stepped(running, begun, processed=1)
    await ended(running, await redriven(running), RunState.FAILED)
    summary = await stepped(running, begun, state="STOPPED")
    assert (summary["done"], summary["processed"], summary["stopped_by"]) == (1, 1, None)
    assert "failed again as before" in summary["stop_reason"]
    assert await redriven(running) == []
    assert (await api.get("/v1/dlq"))["groups"][0]["count"] == 20
    events = (await api.get("/v1/events?type=operation.stopped"))["items"]
    assert [event["data"]["reason"] for event in events] == [summary["stop_reason"]]


async def test_a_failure_in_the_rest_stops_it_too(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    await dead(running, 30)
    begun = await api.ok("POST", "/v1/dlq:redrive", {"max_per_second": 10}, status=202)
    await stepped(running, begun, processed=1)
    await ended(running, await redriven(running), RunState.SUCCEEDED)
    await stepped(running, begun, processed=11)
    await ended(running, await redriven(running), RunState.SUCCEEDED)
    await stepped(running, begun, processed=12)
    await ended(running, await redriven(running), RunState.FAILED)
    summary = await stepped(running, begun, state="STOPPED")
    assert 12 <= summary["processed"] < 30
    assert "failed again as before" in summary["stop_reason"]


async def test_each_fingerprint_has_its_canary(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    await api.target("https://other.internal", target_id="tgt_other")
    await dead(running, 15)
    broken = await dead(running, 3, "tgt_other")
    begun = await api.ok("POST", "/v1/dlq:redrive", {}, status=202)
    await stepped(running, begun, processed=2)
    first = await redriven(running)
    (back,) = set(first) & set(broken)
    await ended(running, [run for run in first if run != back], RunState.SUCCEEDED)
    await ended(running, [back], RunState.FAILED)
    summary = await stepped(running, begun, state="STOPPED")
    assert "tgt_other" in summary["stop_reason"]
    assert summary["processed"] == 2


async def test_its_pace_is_kept_and_it_can_be_stopped(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    await dead(running, 60)
    begun = await api.ok("POST", "/v1/dlq:purge", {"max_per_second": 20}, status=202)
    assert begun["stage"] is None
    began = asyncio.get_running_loop().time()
    await stepped(running, begun, processed=30)
    assert asyncio.get_running_loop().time() - began >= 1.2
    stopped = await api.ok("POST", f"/v1/redrives/{begun['redrive_id']}:stop")
    assert (stopped["state"], stopped["stopped_by"]) == ("STOPPED", "key:test")
    for _ in range(3):
        await worker(running).step()
    assert (await api.get("/v1/dlq"))["groups"][0]["count"] == 60 - stopped["processed"]
    assert await redriven(running) == []


async def test_several_workers_redrive_each_letter_once(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    letters = await dead(running, 40)
    runs = [{"run_ids": letters[:30]}, {"run_ids": letters[10:]}]
    begun = [
        await api.ok("POST", "/v1/dlq:redrive", {"filter": one, "max_per_second": 1000}, status=202)
        for one in runs
    ]

    async def finished() -> bool:
        await asyncio.gather(*(worker(running).step() for _ in range(4)))
        waiting = await redriven(running)
        if waiting:
            await ended(running, waiting, RunState.SUCCEEDED)
        states = [(await api.get(f"/v1/redrives/{one['redrive_id']}"))["state"] for one in begun]
        return states == ["DONE", "DONE"]

    await eventually(finished)
    while waiting := await redriven(running):
        await ended(running, waiting, RunState.SUCCEEDED)
    found = [await api.get(f"/v1/redrives/{one['redrive_id']}") for one in begun]
    assert sum(one["done"] for one in found) == 40
    assert sum(one["unchanged"] for one in found) == 20
    for letter in letters:
        run = await api.get(f"/v1/runs/{letter}")
        assert (run["state"], run["series"], len(run["attempts"])) == ("SUCCEEDED", 2, 2)


async def test_one_letter_alone(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    (letter,) = await dead(running, 1)
    run = await api.ok("POST", f"/v1/dlq/{letter}:redrive")
    assert (run["state"], run["series"], run["attempt"], run["epoch"] > 0) == ("DUE", 2, 0, True)
    await api.problem("POST", f"/v1/dlq/{letter}:redrive", status=404, code="NOT_FOUND")
    (claim,) = await claimed(running, [letter], series=2)
    assert claim.epoch > run["epoch"]
    await running.complete(claim, RunState.FAILED)
    read = await api.get(f"/v1/dlq/{letter}")
    assert (read["state"], read["series"], [one["state"] for one in read["earlier"]]) == (
        "OPEN",
        2,
        ["REDRIVEN"],
    )


async def test_what_cannot_be_asked_for(running: Cell) -> None:
    api = running.api
    await api.target(target_id=TARGET)
    await api.problem("POST", "/v1/dlq:redrive", {}, status=409, code="CONFLICT")
    (letter,) = await dead(running, 1)
    chosen = await api.ok("POST", "/v1/dlq:purge", {"dry_run": True}, status=201)
    again = {"selection_id": chosen["selection_id"], "hash": "0" * 64}
    await api.problem("POST", "/v1/dlq:purge", again, status=412, code="PRECONDITION_FAILED")
    again["hash"] = chosen["hash"]
    await api.problem("POST", "/v1/dlq:redrive", again, status=404, code="NOT_FOUND")
    await api.problem("GET", f"/v1/selections/{chosen['selection_id']}", status=404, code="NOT_FOUND")
    for body in (
        {"hash": "0" * 64},
        {**again, "dry_run": True},
        {"filter": {"run_ids": ["x"]}},
        {"max_per_second": 0},
    ):
        await api.problem("POST", "/v1/dlq:redrive", body, status=422, code="INVALID")
    keyed = {"idempotency-key": "k1"}
    first = await api.ok("POST", "/v1/dlq:redrive", {}, status=202, headers=keyed)
    second = await api.ok("POST", "/v1/dlq:redrive", {}, headers=keyed)
    assert first["redrive_id"] == second["redrive_id"]
    stranger = running.for_tenant()
    await stranger.place(stranger.api.tenant)
    path = f"/v1/redrives/{first['redrive_id']}"
    await stranger.api.problem("GET", path, status=404, code="NOT_FOUND")
    await stranger.api.problem("POST", f"{path}:stop", status=404, code="NOT_FOUND")
    await stranger.api.problem("POST", f"/v1/dlq/{letter}:redrive", status=404, code="NOT_FOUND")
    assert (await stranger.api.get("/v1/redrives"))["items"] == []


async def test_the_seeds_request_is_understood(running: Cell) -> None:
    api = running.api
    await api.target(target_id="tgt_reports_rollup")
    await dead(running, 2, "tgt_reports_rollup")
    since = f"{datetime.now(UTC):%Y-%m-%d}T00:00:00Z"
    asked = {"filter": {"target_id": "tgt_reports_rollup", "failed_after": since}, "max_per_second": 200}
    begun = await api.ok("POST", "/v1/dlq:redrive", asked, status=202)
    assert (begun["total"], begun["max_per_second"]) == (2, 200)
