"""Leases, fences and clocks: what a host may still do, and when it stops by itself."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from aiohttp import web

from cells.domain.run import AttemptOutcome, RunState
from cells.execution.host_agent import HostAgent
from cells.observability.metrics import Metrics
from cells.ports import Retryable
from tests.component.cells.execution.harness import SteppedClock, cell
from tests.component.cells.execution.http_target import HttpTarget, answering
from tests.waiting import eventually


async def test_a_host_that_cannot_renew_stops_before_the_store_gives_it_up(
    cell_database_url: str, valkey_url: str
) -> None:
    async with cell(cell_database_url, valkey_url, parts=("host",), lease_ms=1500, renew_seconds=0.2) as made:
        first = made.host.host_id
        made.network.cut = {"renew_host", "register_host"}
        await eventually(lambda: not made.host.live(), interval=0.005)
        async with await psycopg.AsyncConnection.connect(cell_database_url) as database:
            cursor = await database.execute(
                "SELECT lease_expires_at > clock_timestamp() FROM hosts WHERE host_id = %s", (first,)
            )
            assert await cursor.fetchone() == (True,)
        with pytest.raises(Retryable):
            _ = made.host.host_id
        made.network.cut = set()
        await made.host.wait_live()
        assert made.host.host_id > first
        assert not made.host.holds(first)
        assert made.count("host_lease_losses_total") == 1


async def test_a_host_the_store_has_given_up_comes_back_as_another(
    cell_database_url: str, valkey_url: str
) -> None:
    async with cell(cell_database_url, valkey_url, parts=("host",), renew_seconds=0.1) as made:
        first = made.host.host_id
        await made.store.retire_host(host_id=first)
        await eventually(lambda: made.host.live() and made.host.host_id != first)
        assert made.count("host_lease_losses_total") == 1


async def test_a_retired_host_is_not_live(cell_database_url: str, valkey_url: str) -> None:
    async with cell(cell_database_url, valkey_url, parts=("host",)) as made:
        await made.host.retire()
        assert not made.host.live()


@pytest.mark.parametrize(("ahead_ms", "alarming"), [(5_000, True), (-5_000, True), (200, False)])
async def test_the_clock_is_measured_at_each_renewal(
    cell_database_url: str, valkey_url: str, ahead_ms: int, alarming: bool
) -> None:
    async with cell(cell_database_url, valkey_url, parts=()) as made:
        clock, metrics = SteppedClock(), Metrics()
        clock.ahead_ms = ahead_ms
        host = HostAgent(made.store, clock, metrics, roles=["executor"])
        stop = asyncio.Event()
        running = asyncio.create_task(host.run(stop))
        await host.wait_live()
        stop.set()
        await running
        offset = metrics.registry.get_sample_value("host_clock_offset_seconds")
        assert offset == pytest.approx(-ahead_ms / 1000, abs=0.5)
        assert metrics.registry.get_sample_value("host_clock_alarms_total") == float(alarming)
        # Never more than it is: the store's answer may have been on its way for a while.
        assert max(0, ahead_ms - 500) <= host.ahead_ms <= max(0, ahead_ms)


async def test_a_lapsed_host_starts_no_call_and_its_runs_are_taken_back(
    cell_database_url: str, valkey_url: str, target: HttpTarget
) -> None:
    opened = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await opened.wait()
        return web.Response(text="late")

    target.answer = slow
    async with cell(
        cell_database_url,
        valkey_url,
        parts=("host", "dispatcher", "executor", "reaper"),
        lease_ms=1500,
        renew_seconds=0.2,
    ) as made:
        await made.target(target.url, max_concurrency=1)
        called, waiting = await made.run_now(), await made.run_now()
        await eventually(lambda: made.count("executor_parked", priority="default") == 1)
        # The one behind it is not given back, either: it waits for a slow target no longer than 0.5 s.
        made.network.cut = {"renew_host", "register_host", "reap", "release"}
        await eventually(lambda: not made.host.live())
        # The call under way cannot be recalled; the one behind it must not begin.
        opened.set()
        await eventually(lambda: made.count("executor_fenced_total") == 1)
        assert len(target.received) == 1
        target.answer = answering(200)
        made.network.cut = set()
        runs = [await made.ended(called), await made.ended(waiting)]
    # Whichever was first: the first call's outcome was recorded by the next incarnation before
    # the reaper took the run back; the fenced one was lost and ran again under a higher epoch.
    by_outcomes = {tuple(attempt.outcome for attempt in run.attempts): run for run in runs}
    assert set(by_outcomes) == {
        (AttemptOutcome.SUCCEEDED,),
        (AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED),
    }
    again = by_outcomes[AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]
    assert (again.state, again.attempt, again.epoch) == (RunState.SUCCEEDED, 1, (1 << 20) + 1)
    assert len(target.received) == 2


async def test_completions_wait_for_the_store(
    cell_database_url: str, valkey_url: str, target: HttpTarget
) -> None:
    async with cell(cell_database_url, valkey_url) as made:
        await made.target(target.url)
        made.network.cut = {"complete"}
        keys = [await made.run_now() for _ in range(3)]
        await eventually(lambda: made.count("executor_completions_pending") == 3)
        for key in keys:
            run = await made.run(key)
            assert run is not None
            assert run.state is RunState.RUNNING
        made.network.cut = set()
        for key in keys:
            assert (await made.ended(key)).state is RunState.SUCCEEDED
    assert len(target.received) == 3


async def test_what_the_store_refuses_costs_nobody_else(
    cell_database_url: str, valkey_url: str, target: HttpTarget
) -> None:
    async with cell(cell_database_url, valkey_url, parts=("host", "dispatcher")) as made:
        await made.target(target.url)
        keys = [await made.run_now() for _ in range(8)]
        unclaimable, unrecordable, *others = keys
        made.network.refused = {
            "claim": lambda member: member.parent_id == unclaimable.parent_id,
            "complete": lambda completion: completion.key == unrecordable,
        }
        # All eight come in one batch.
        await eventually(lambda: made.count("timers_released_total", priority="DEFAULT") == 8)
        made.begin("executor")
        for key in others:
            assert (await made.ended(key)).state is RunState.SUCCEEDED
        await eventually(lambda: made.count("executor_completions_dropped_total") == 1)
        assert made.count("executor_claims_total", result="lost") == 1
        assert await made.run(unclaimable) is None
        run = await made.run(unrecordable)
        assert run is not None
        assert run.state is RunState.RUNNING
    assert len(target.received) == 7


async def test_members_come_back_when_the_claim_fails(
    cell_database_url: str, valkey_url: str, target: HttpTarget
) -> None:
    async with cell(cell_database_url, valkey_url) as made:
        await made.target(target.url)
        made.network.cut = {"claim"}
        key = await made.run_now()
        await eventually(lambda: made.count("executor_claims_total", result="unsure") >= 1)
        made.network.cut = set()
        assert (await made.ended(key)).state is RunState.SUCCEEDED


async def test_runs_whose_claim_was_never_answered_are_found(
    cell_database_url: str, valkey_url: str, target: HttpTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cells.execution.executor.AUDIT_SECONDS", 0.2)
    opened = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await opened.wait()
        return web.Response()

    target.answer = slow
    async with cell(cell_database_url, valkey_url) as made:
        await made.target(target.url)
        held = await made.run_now()
        await eventually(lambda: len(target.received) == 1)
        made.network.unanswered = {"claim"}
        lost = await made.run_now()
        await eventually(lambda: made.count("executor_claims_total", result="unsure") >= 1)
        made.network.unanswered = set()
        target.answer = answering(200)
        run = await made.ended(lost)
        assert [a.outcome for a in run.attempts] == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]
        assert run.attempt == 1
        # What it knows that it holds is left alone.
        opened.set()
        assert [a.outcome for a in (await made.ended(held)).attempts] == [AttemptOutcome.SUCCEEDED]
        assert made.count("executor_orphans_total") == 1
    assert len(target.received) == 2


async def test_never_early_by_the_hosts_own_clock(
    cell_database_url: str, valkey_url: str, target: HttpTarget
) -> None:
    async with cell(cell_database_url, valkey_url) as made:
        await made.target(target.url)
        made.executor_clock.ahead_ms = -700
        arrived: list[int] = []

        async def note(_: web.Request) -> web.Response:
            arrived.append(made.executor_clock.now_ms())
            return web.Response()

        target.answer = note
        run = await made.ended(await made.run_now())
        due_ms = round(run.due_at.timestamp() * 1000)
        assert run.started_at is not None
        assert run.started_at >= run.due_at
        assert arrived[0] >= due_ms


async def test_work_that_waits_for_a_busy_target_costs_no_attempt(
    cell_database_url: str, valkey_url: str, target: HttpTarget
) -> None:
    """It is set aside before it is claimed, or given back after: which, depends on who was faster."""
    opened = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await opened.wait()
        return web.Response()

    target.answer = slow
    async with cell(cell_database_url, valkey_url) as made:
        await made.target(target.url, max_concurrency=1)
        keys = [await made.run_now(), await made.run_now()]
        await eventually(lambda: len(target.received) == 1)
        states = [RunState.RUNNING, RunState.RETRY_WAIT, RunState.DUE]

        async def one_waits() -> bool:
            runs = [await made.run(key) for key in keys]
            found = sorted(states.index(run.state) if run else 9 for run in runs)
            return found in ([0, 1], [0, 2]) or (9 in found and 0 in found)

        await eventually(one_waits)
        opened.set()
        runs = [await made.ended(key) for key in keys]
    assert [run.state for run in runs] == [RunState.SUCCEEDED] * 2
    assert [(run.attempt, len(run.attempts)) for run in runs] == [(1, 1), (1, 1)]
    assert len(target.received) == 2
