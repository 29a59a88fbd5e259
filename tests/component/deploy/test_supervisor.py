"""The supervisor restarts what dies, leaves down what was put down, and stops in order."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO, Any

import pytest

from deploy import children, ctl
from deploy.children import CannotStart
from deploy.home import AlreadyRunning, Home, read_json
from deploy.supervisor import Process, Supervisor
from tests.waiting import eventually

SLEEP = "import time; time.sleep(600)"


def child(name: str, code: str = SLEEP, **more: Any) -> Process:
    def spawn(log: IO[bytes]) -> subprocess.Popen[bytes]:
        return children.spawn([sys.executable, "-c", code], log=log)

    return Process(name=name, spawn=spawn, ready=more.pop("ready", lambda: True), **more)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.claim()
    return home


@pytest.fixture
async def supervisor(home: Home) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(home, say=print, changed=lambda: None)
    yield supervisor
    await supervisor.stop()


def status(home: Home, name: str) -> dict[str, Any]:
    found: dict[str, Any] = read_json(home.status)["processes"][name]
    return found


async def test_a_child_that_dies_is_started_again(home: Home, supervisor: Supervisor) -> None:
    await supervisor.start(child("one"))
    first = supervisor.pids["one"]
    assert first is not None
    os.kill(first, signal.SIGKILL)
    second = await eventually(lambda: supervisor.pids["one"] not in (first, None) and supervisor.pids["one"])
    await eventually(lambda: status(home, "one") == {"condition": "ready", "pid": second, "restarts": 1})


async def test_what_a_dead_child_started_dies_too(tmp_path: Path, supervisor: Supervisor) -> None:
    note = tmp_path / "grandchild"
    code = f"""
import subprocess, sys, time
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(note)!r}, "a").write(f"{{grandchild.pid}}\\n")
time.sleep(600)
"""
    await supervisor.start(child("parent", code, ready=note.exists))
    grandchild = await eventually(lambda: note.read_text().split())
    pid = supervisor.pids["parent"]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    def is_gone() -> bool:
        try:
            return Path(f"/proc/{grandchild[0]}/stat").read_text().split()[2] == "Z"
        except FileNotFoundError:
            return True

    await eventually(is_gone)


async def test_a_child_put_down_stays_down_until_it_is_wanted_again(
    home: Home, supervisor: Supervisor
) -> None:
    await supervisor.start(child("one"))
    await supervisor.start(child("two"))
    two = supervisor.pids["two"]
    await asyncio.to_thread(ctl.set_wanted, home, "one", up=False)
    assert supervisor.pids == {"one": None, "two": two}
    await asyncio.to_thread(ctl.set_wanted, home, "one", up=True)
    assert status(home, "one")["condition"] == "ready"
    assert status(home, "one")["restarts"] == 0
    assert supervisor.pids["two"] == two


async def test_a_child_that_ignores_its_signal_can_be_put_down_by_force(
    home: Home, supervisor: Supervisor, tmp_path: Path
) -> None:
    marker = tmp_path / "deaf"
    code = f"import signal; signal.signal(15, signal.SIG_IGN); open({str(marker)!r}, 'w'); {SLEEP}"
    await supervisor.start(child("deaf", code, ready=marker.exists, grace_seconds=600))
    await asyncio.to_thread(ctl.set_wanted, home, "deaf", up=False, kill=True)
    assert supervisor.pids == {"deaf": None}


async def test_an_unknown_name_is_refused(home: Home, supervisor: Supervisor) -> None:
    await supervisor.start(child("one"))
    with pytest.raises(ctl.Refused, match=r"no process 'on'.*Known: one"):
        await asyncio.to_thread(ctl.set_wanted, home, "on", up=False)
    assert not list(home.down.iterdir())


def test_nothing_can_be_put_down_where_nothing_runs(tmp_path: Path) -> None:
    with pytest.raises(ctl.Refused, match="Nothing runs"):
        ctl.set_wanted(Home(tmp_path), "one", up=False)


async def test_a_start_that_fails_shows_its_log(supervisor: Supervisor) -> None:
    with pytest.raises(CannotStart, match=r"(?s)broken ended with 3\..*the reason why"):
        await supervisor.start(child("broken", "print('the reason why'); exit(3)", ready=lambda: False))


async def test_a_start_that_never_answers_is_given_up(supervisor: Supervisor) -> None:
    with pytest.raises(CannotStart, match="mute did not become ready within 0 s"):
        await supervisor.start(child("mute", ready=lambda: False), timeout_seconds=0.3)


async def test_lower_stages_stop_first(home: Home, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    code = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        f"    time.sleep({{wait}}); open({str(journal)!r}, 'a').write('{{name}} '); sys.exit()\n"
        f"signal.signal(15, end); open({str(tmp_path)!r} + '/{{name}}', 'w'); {SLEEP}"
    )
    supervisor = Supervisor(home, say=print, changed=lambda: None)
    for name, stage, wait in (("engine", 2, 0), ("work", 1, 0.1), ("entry", 0, 0.3)):
        started: Callable[[], bool] = (tmp_path / name).exists
        await supervisor.start(child(name, code.format(name=name, wait=wait), stage=stage, ready=started))
    await supervisor.stop()
    assert journal.read_text() == "entry work engine "


async def test_a_second_supervisor_is_turned_away(home: Home, supervisor: Supervisor) -> None:
    await supervisor.start(child("one"))
    pid = supervisor.pids["one"]
    with pytest.raises(AlreadyRunning, match=f"already runs in .*process {os.getpid()}"):
        Home(home.folder).claim()
    assert supervisor.pids["one"] == pid
