"""The process of a cell: starts without its engines, outlives their outages, ends in order."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from cells.domain.run import AttemptOutcome, RunState
from cells.store.postgres import PostgresStore
from deploy.engines import Postgres, Valkey, new_password, running, temporary_folder
from deploy.ports import Reservation
from tests.component.cells.execution.harness import cell
from tests.component.cells.execution.http_target import HttpTarget, answering, http_target
from tests.component.cells.host_process import ROOT, environment, host_process
from tests.waiting import eventually, eventually_sync

pytestmark = pytest.mark.slow


@pytest.fixture
async def target() -> AsyncIterator[HttpTarget]:
    async with http_target() as running_target:
        yield running_target


def test_settings_that_are_none_are_told_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cells.host", "--roles", "api,cook"],
        env={"CELL_NAME": "test"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert "CELL_DATABASE_URL is not set" in done.stderr
    assert "--roles: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cell_process_by_itself(empty_database_url: str, valkey_url: str, tmp_path: Path) -> None:
    with host_process(tmp_path, database_url=empty_database_url, valkey_url=valkey_url) as host:
        assert host.checks == {"store": "ok", "queue": "ok", "host": "ok", "process": "ok"}
        for metric in (
            "scheduler_dispatch_lateness_seconds_count",
            "executor_claims_total",
            "host_clock_offset_seconds",
            "host_role_running",
        ):
            assert metric in host.get("/metrics").text
        assert host.metric("host_lease_live") == 1
        assert host.metric("host_role_restarts_total") == 0
        assert host.get("/v1/jobs").status_code == 401
        assert host.terminate() == 0
    # Other tests' killed processes may have left folders behind on this machine.
    removed = "folders of processes that were killed are removed"
    said = [event["message"] for event in host.events() if event["message"] != removed]
    assert said[0] == "cell process started"
    assert said[-1] == "cell process ended"
    assert not [event for event in host.events() if event["level"] in ("error", "critical")]


async def test_another_cells_database_ends_the_start(cell_database_url: str, valkey_url: str) -> None:
    """No engine is away: waiting would only hide it."""
    async with PostgresStore(cell_database_url, cell_name="another"):
        pass
    reservation = Reservation()
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "cells.host"],
        env=environment(cell_database_url, valkey_url, port=reservation.port),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    reservation.release()
    assert done.returncode == 1
    assert "this database belongs to cell another" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_without_the_api_only_ops_are_served(
    empty_database_url: str, valkey_url: str, tmp_path: Path
) -> None:
    with host_process(
        tmp_path, database_url=empty_database_url, valkey_url=valkey_url, CELL_ROLES="executor,reaper"
    ) as host:
        assert host.get("/v1/jobs").status_code == 404
        assert host.get("/metrics").status_code == 200
        assert "timers_wakes_total" not in host.get("/metrics").text


async def test_a_drain_finishes_what_it_calls_and_gives_back_the_rest(
    empty_database_url: str, valkey_url: str, tmp_path: Path, target: HttpTarget
) -> None:
    opened = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await opened.wait()
        return web.Response(text="finished")

    target.answer = slow
    with host_process(
        tmp_path, database_url=empty_database_url, valkey_url=valkey_url, CELL_DRAIN_SECONDS="60"
    ) as host:
        async with cell(empty_database_url, valkey_url, parts=("host",)) as admin:
            await admin.target(target.url, max_concurrency=1)
            # Claimed together: one that comes to a target known to be full is left unclaimed.
            first, second = await admin.runs_now(2)
            await eventually(lambda: len(target.received) == 1)
            host.process.send_signal(signal.SIGTERM)

            async def one_given_back() -> bool:
                rows = [await admin.run(first), await admin.run(second)]
                return {row.state for row in rows if row} == {RunState.RUNNING, RunState.RETRY_WAIT}

            await eventually(one_given_back, timeout=30)
            opened.set()
            assert await asyncio.to_thread(host.process.wait, 60) == 0
            rows = [await admin.run(first), await admin.run(second)]
            (done,) = [row for row in rows if row and row.state is RunState.SUCCEEDED]
            (left,) = [row for row in rows if row and row.state is RunState.RETRY_WAIT]
            assert done.attempts[0].body == "finished"
            assert (left.attempt, left.attempts) == (0, [])
            assert len(target.received) == 1


async def test_a_killed_host_is_repaired_in_seconds(
    empty_database_url: str, valkey_url: str, tmp_path: Path, target: HttpTarget
) -> None:
    forever = asyncio.Event()

    async def never(_: web.Request) -> web.Response:
        await forever.wait()
        return web.Response()

    target.answer = never
    with host_process(tmp_path, database_url=empty_database_url, valkey_url=valkey_url) as doomed:
        async with cell(empty_database_url, valkey_url, parts=("host",)) as admin:
            await admin.target(target.url)
            key = await admin.run_now(timeout_seconds=60)
            await eventually(lambda: len(target.received) == 1)
            doomed.kill()
            target.answer = answering(200)
            with host_process(tmp_path, database_url=empty_database_url, valkey_url=valkey_url, name="heir"):
                run = await admin.ended(key, timeout=20)
    assert run.state is RunState.SUCCEEDED
    assert [attempt.outcome for attempt in run.attempts] == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]
    assert run.attempt == 1
    one, two = target.received
    assert one.headers["Idempotency-Key"] == two.headers["Idempotency-Key"]
    assert int(two.headers["X-Fencing-Token"]) == int(one.headers["X-Fencing-Token"]) + 1


async def test_engines_that_come_later_and_go_away(tmp_path: Path, target: HttpTarget) -> None:
    postgres_port, valkey_port = Reservation(), Reservation()
    with temporary_folder() as folder:
        postgres = Postgres(folder / "pg", port=postgres_port.port, password=new_password())
        valkey = Valkey(folder / "vk", port=valkey_port.port, password=new_password(), durable=False)
        with host_process(tmp_path, database_url=postgres.url, valkey_url=valkey.url, wait=False) as host:
            assert not host.ready()
            assert host.checks["process"] == "unavailable"
            for round_ in range(2):
                with running(postgres, folder / "pg.log"), running(valkey, folder / "vk.log"):
                    eventually_sync(host.ready, timeout=30)
                    async with cell(postgres.url, valkey.url, parts=("host",)) as admin:
                        await admin.target(target.url)
                        run = await admin.ended(await admin.run_now())
                        assert run.state is RunState.SUCCEEDED, round_
                eventually_sync(lambda: not host.ready())
                assert host.checks["store"] != "ok"
                assert host.alive()
            assert host.terminate() == 0
