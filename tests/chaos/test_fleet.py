"""One cell in several processes: shards change hands, work crosses from process to process."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import httpx
import pytest
import redis

from cells.timers.keys import Keys
from tests.accounts import accounted, settle
from tests.api import Api
from tests.bench.cell import CELL
from tests.fleet import Fleet, Load, fleet
from tests.proofs.cache_loss import lose_again_and_again
from tests.recorder import Recorder
from tests.stack import Stack
from tests.waiting import eventually_sync

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(300)]

#: A host's lease, a look for free shards, and what the machine needs.
TAKEOVER_SECONDS = 11.0


@pytest.fixture
def target() -> Iterator[Recorder]:
    with Recorder() as recorder:
        yield recorder


def holders(cell: Fleet) -> set[str]:
    """Processes whose live incarnations hold shards; empty unless all shards are held."""
    rows = cell.query(
        "SELECT h.name, count(*) FROM shard_leases s JOIN live_hosts l USING (host_id)"
        " JOIN hosts h USING (host_id) GROUP BY 1"
    )
    by_pid = {str(host.process.pid): name for name, host in cell.hosts.items()}
    names = {by_pid.get(name.split("-")[-2], name) for name, _ in rows}
    return names if sum(count for _, count in rows) == 256 else set()


def test_shards_are_shared_given_back_and_taken_over(target: Recorder) -> None:
    with fleet(target.url) as cell:
        cell.start_all("abc")
        eventually_sync(lambda: holders(cell) == {"a", "b", "c"}, timeout=15)
        with Load(cell, per_second=20) as load:
            eventually_sync(lambda: len(target.calls) >= 20, timeout=20)
            cell.kill("a")
            killed = time.monotonic()
            eventually_sync(lambda: holders(cell) == {"b", "c"}, timeout=20)
            assert time.monotonic() - killed <= TAKEOVER_SECONDS
            # One that leaves in order gives its shards back at once.
            cell.hosts["b"].process.send_signal(signal.SIGTERM)
            assert cell.hosts["b"].process.wait(40) == 0
            left = time.monotonic()
            eventually_sync(lambda: holders(cell) == {"c"}, timeout=20)
            assert time.monotonic() - left <= 5
            load.finish()
            settle(cell, load, timeout=60)
        found = accounted(cell, load, target)
    assert found["holds"], found
    assert found["latest_seconds"] <= TAKEOVER_SECONDS + 1, found


def test_each_role_in_a_process_of_its_own(target: Recorder) -> None:
    """An API adds directly what a dispatcher elsewhere releases and an executor elsewhere calls; what
    is lost on the way is found by the sweeper of the loader's process."""
    with fleet(target.url) as cell:
        for name, roles in (
            ("api", "api"),
            ("loader", "loader"),
            ("dispatcher", "dispatcher"),
            ("executor", "executor"),
            ("rest", "reaper,meter"),
        ):
            cell.launch(name, roles)
        for host in cell.hosts.values():
            eventually_sync(host.answers, timeout=60)
        eventually_sync(lambda: holders(cell) == {"dispatcher"}, timeout=15)
        api = {name: host for name, host in cell.hosts.items() if name == "api"}
        with Load(cell, per_second=10, hosts=api) as load:
            eventually_sync(lambda: len(target.calls) >= 20, timeout=20)
            with redis.Redis.from_url(cell.cell.valkey_url) as valkey:
                for key in valkey.scan_iter(Keys(CELL).prefix + "b:*"):
                    valkey.delete(key)
            load.finish()
            settle(cell, load, timeout=60)
        found = accounted(cell, load, target)
        assert found["holds"], found
        assert cell.hosts["loader"].metric("timers_stragglers_total") > 0

        # Without any loader the dispatcher reads the minutes that nobody marked.
        cell.kill("loader")
        with Load(cell, per_second=10, hosts=api, ahead_seconds=(4, 8)) as more:
            eventually_sync(lambda: len(more.made) >= 20, timeout=20)
            cell.flush_valkey()
            more.finish()
        eventually_sync(
            lambda: cell.hosts["dispatcher"].metric("timers_minute_loads_total") > 0, timeout=20, interval=0.5
        )
        eventually_sync(lambda: more.made & target.keys().keys(), timeout=20)
        cell.start("loader", "loader")
        settle(cell, more, timeout=60)
        assert more.made <= target.keys().keys()


def test_a_cache_that_is_lost_again_and_again_costs_no_run(target: Recorder) -> None:
    with fleet(target.url) as cell:
        cell.start_all("ab")
        with Load(cell, per_second=20) as load:
            lose_again_and_again(cell, 1, pause_seconds=2.5)
            load.finish()
            settle(cell, load, timeout=60)
        found = accounted(cell, load, target)
    assert found["holds"], found


def test_a_cell_of_two_processes_answers_while_either_is_away() -> None:
    environment = {
        "CLOCKHOUSE_CELLS": "local-shared-1",
        "CLOCKHOUSE_CELL_HOSTS": "2",
        "CLOCKHOUSE_DEMO_JOBS": "0",
    }
    with Recorder() as target, Stack(environment=environment) as stack:
        info = stack.info
        assert set(info["cells"]["local-shared-1"]["hosts"]) == {
            "cell-local-shared-1",
            "cell-local-shared-1-b",
        }
        api = Api(info["api_url"], info["api_key"])
        registered = api.register_target(target.url)["target_id"]
        for name in info["cells"]["local-shared-1"]["hosts"]:
            stack.stop(name, kill=True)
            job = api.create_job({"schedule": {"type": "NOW"}, "target": {"target_id": registered}})
            eventually_sync(lambda: job["job_id"] in str(target.keys()), timeout=30)  # noqa: B023
            for _ in range(10):
                assert api.http.get("/v1/jobs").status_code == 200
            assert httpx.get(f"{info['console_url']}/readyz", timeout=10).status_code == 200
            stack.start(name)
