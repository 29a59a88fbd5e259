"""Engines keep their data, end with their supervisor, and are never in the way of the next start."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from deploy.children import Identity, as_identity
from deploy.home import ROOT
from tests.waiting import eventually_sync

pytestmark = pytest.mark.slow


@contextmanager
def engines(folder: Path, user: str | None = None) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.component.deploy.engines_only", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        text=True,
        user=user,
        group=None if user is None else "nogroup",
        extra_groups=None if user is None else [],
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        line = stdout.readline()
    assert line, "the engines did not start"
    at = json.loads(line)
    try:
        yield process, at
    finally:
        process.kill()
        process.wait()
        eventually_sync(lambda: gone(at["pids"]), timeout=15)


def gone(pids: list[int]) -> bool:
    """Whether all have ended; nobody may have waited for an orphan yet."""
    for pid in pids:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                return False
        except FileNotFoundError:
            continue
    return True


def _may_run_as(user: str) -> bool:
    if os.geteuid() != 0:
        return False
    try:
        return subprocess.run([sys.executable, "-c", ""], user=user, group="nogroup").returncode == 0
    except PermissionError:  # this Python lies under root's home
        return False


def _keeps_data(folder: Path, user: str | None = None) -> None:
    with engines(folder, user) as (process, at):
        with psycopg.connect(at["database"]) as database:
            database.execute("CREATE TABLE kept (n int)")
            database.execute("INSERT INTO kept VALUES (42)")
        with redis.Redis.from_url(at["valkey"]) as client:
            client.set("kept", "42")
            eventually_sync(lambda: client.info("persistence")["aof_pending_bio_fsync"] == 0)
        process.kill()
        eventually_sync(lambda: gone(at["pids"]), timeout=15)
    with engines(folder, user) as (_, again), psycopg.connect(again["database"]) as database:
        assert database.execute("SELECT n FROM kept").fetchone() == (42,)
        with redis.Redis.from_url(again["valkey"], decode_responses=True) as client:
            assert client.get("kept") == "42"
        assert again["database"] == at["database"], "ports and passwords are kept"


def test_a_killed_supervisor_leaves_nothing_behind_under_a_private_folder(tmp_path: Path) -> None:
    """As root: pytest's folders are private, so this is the user namespace."""
    _keeps_data(tmp_path / "home")


def test_a_killed_supervisor_leaves_nothing_behind_under_a_public_folder() -> None:
    """As root: this is the user nobody."""
    folder = Path(tempfile.mkdtemp(prefix="clockhouse-"))
    folder.chmod(0o755)
    try:
        _keeps_data(folder / "home")
    finally:
        shutil.rmtree(folder)


@pytest.mark.skipif(not _may_run_as("daemon"), reason="needs root, and a Python that others may run")
def test_a_killed_supervisor_leaves_nothing_behind_for_an_ordinary_user() -> None:
    folder = Path(tempfile.mkdtemp(prefix="clockhouse-"))
    try:
        os.chown(folder, 1, 1)
        _keeps_data(folder / "home", user="daemon")
    finally:
        shutil.rmtree(folder)


def test_what_an_earlier_run_left_does_not_block(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with engines(home):
        pass
    data = home / "postgres-control" / "data"
    # A lock file that names a living process which is no PostgreSQL, and half a cluster.
    (data / "postmaster.pid").write_text(f"{os.getpid()}\n{data}\n0\n1\n\n127.0.0.1\n")
    (home / "postgres-control" / "unfinished-x").mkdir()
    with engines(home) as (_, again), psycopg.connect(again["database"]) as database:
        assert database.execute("SELECT 1").fetchone() == (1,)
    assert not (home / "postgres-control" / "unfinished-x").exists()


def test_a_server_that_outlived_its_supervisor_is_ended_first(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with engines(home) as (process, at):
        # Stopped processes do not act on the signal that our death sends them.
        for pid in at["pids"]:
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        process.wait()
        assert not gone(at["pids"])
        with engines(home) as (_, again), psycopg.connect(again["database"]) as database:
            assert database.execute("SELECT 1").fetchone() == (1,)
            assert gone(at["pids"])


def test_an_identity_changes_the_command_only_where_it_must() -> None:
    assert as_identity(["x"], Identity.NOBODY) == ["x"]
    assert as_identity(["x"], Identity.NAMESPACE)[-1:] == ["x"]
    assert as_identity(["x"], Identity.NAMESPACE)[0] == "unshare"
