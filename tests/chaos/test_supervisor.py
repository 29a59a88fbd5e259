"""`make run` survives whatever happens to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy import children
from deploy.home import ROOT, Home, read_json
from tests.stack import START_SECONDS, Stack
from tests.waiting import eventually_sync

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(400)]


def jobs(stack: Stack) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {stack.info['api_key']}"}
    answer = httpx.get(f"{stack.info['api_url']}/v1/jobs", headers=headers, timeout=30)
    listed: dict[str, Any] = answer.raise_for_status().json()
    return {job["name"]: job["job_id"] for job in listed["items"]}


def test_a_killed_supervisor_is_followed_by_another_with_the_same_data(stack: Stack) -> None:
    before, known = stack.info, jobs(stack)
    stack.kill_supervisor()
    stack.up()
    after = stack.info
    changes = {"processes", "curl"}
    assert {k: v for k, v in after.items() if k not in changes} == {
        k: v for k, v in before.items() if k not in changes
    }
    assert set(before["processes"].values()).isdisjoint(after["processes"].values())
    assert jobs(stack) == known, "the demo jobs are not made twice"


def test_a_second_one_in_the_same_folder_is_turned_away(stack: Stack) -> None:
    pids = stack.info["processes"]
    second = subprocess.run(
        [sys.executable, "-m", "deploy.dev"],
        cwd=ROOT,
        env={**os.environ, "CLOCKHOUSE_HOME": str(stack.home.folder)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert second.returncode == 1
    assert "already runs" in second.stderr
    assert stack.info["console_url"] in second.stderr
    assert stack.info["processes"] == pids


def test_whatever_dies_comes_back(stack: Stack) -> None:
    pids = {n: p for n, p in stack.info["processes"].items() if not n.startswith(("postgres", "valkey"))}
    for name in pids:
        stack.kill(name)
    for name, pid in pids.items():
        assert stack.wait_until_replaced(name, pid, timeout=90) != pid
    assert eventually_sync(lambda: jobs(stack), timeout=30)


def test_engines_that_die_come_back_with_their_data(stack: Stack) -> None:
    known = jobs(stack)
    pids = {n: p for n, p in stack.info["processes"].items() if n.startswith(("postgres", "valkey"))}
    for name in pids:
        stack.kill(name)
    for name, pid in pids.items():
        stack.wait_until_replaced(name, pid, timeout=90)

    def same() -> bool:
        try:
            return jobs(stack) == known
        except httpx.HTTPError:
            return False

    eventually_sync(same, timeout=60)


def test_a_start_that_was_killed_at_any_moment_does_not_block_the_next(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    environment = {**os.environ, "CLOCKHOUSE_HOME": str(home.folder)}
    output = tmp_path / "output"

    def start() -> subprocess.Popen[bytes]:
        with output.open("ab") as log:
            return children.spawn([sys.executable, "-m", "deploy.dev"], log=log, cwd=ROOT, env=environment)

    def has_children(count: int) -> bool:
        return len(read_json(home.status).get("processes", {})) >= count

    for moment in (
        lambda: (home.folder / "postgres-control").exists(),
        lambda: has_children(7),
    ):
        process = start()
        eventually_sync(lambda: moment() or process.poll() is not None, timeout=START_SECONDS)  # noqa: B023
        assert process.returncode is None, output.read_text()
        process.kill()
        process.wait()
    process = start()
    eventually_sync(lambda: home.dev.exists() or process.poll() is not None, timeout=START_SECONDS)
    assert process.returncode is None, output.read_text()
    children.stop(process, how=signal.SIGTERM, grace_seconds=90)
    assert process.returncode == 0
    assert not home.dev.exists()
