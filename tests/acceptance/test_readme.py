"""The README, step by step, as a new user walks it: each of its commands, its Python and its definition."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack import Stack
from tests.waiting import eventually_sync

pytestmark = pytest.mark.stack

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)


class Terminal:
    """A shell in an empty folder, with what the start-up message exports and `clockhouse` on its path."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        command = folder / ".venv/bin/clockhouse"
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m clockhouse "$@"\n')
        command.chmod(0o755)
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "controlplane/client/package")]),
            "CLOCKHOUSE_API_URL": stack.info["api_url"],
            "CLOCKHOUSE_API_KEY": stack.info["api_key"],
        }

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=90
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def terminal(stack: Stack, tmp_path: Path) -> Terminal:
    assert shutil.which("curl"), "the README's first line is a curl"
    return Terminal(stack, tmp_path)


def test_the_first_jobs(stack: Stack, terminal: Terminal) -> None:
    curl, command_line, _ = blocks("sh")
    job_id = json.loads(terminal.run("sh", "-euc", curl))["job_id"]
    listed = terminal.run("sh", "-euc", command_line)
    assert job_id in listed
    assert "0 8 * * 1-5 Europe/Berlin" in listed
    clockhouse = str(terminal.folder / ".venv/bin/clockhouse")

    def last_run() -> str:
        (job,) = (
            each
            for each in json.loads(terminal.run(clockhouse, "jobs", "list", "--json"))
            if each["job_id"] == job_id
        )
        return (job["last_run"] or {}).get("state", "")

    eventually_sync(lambda: last_run() == "SUCCEEDED")
    (code,) = blocks("python")
    assert terminal.run(sys.executable, "-c", code).startswith("job_")


def test_the_first_workflow(stack: Stack, terminal: Terminal) -> None:
    (definition,) = blocks("yaml")
    (terminal.folder / "order.yaml").write_text(definition)
    terminal.run("sh", "-euc", f"export PATH=$PWD/.venv/bin:$PATH\n{blocks('sh')[2]}")
    clockhouse = str(terminal.folder / ".venv/bin/clockhouse")
    found = json.loads(terminal.run(clockhouse, "workflows", "show", "order-1", "--json"))
    assert (found["status"], found["result"]) == ("COMPLETED", {"order": 1, "shipped": True})
    assert [step["step"] for step in found["timeline"]] == ["charge", "pickup", "ship"]


def test_each_problem_names_its_request(terminal: Terminal) -> None:
    """Of a cell, of Django and of the router itself; the header says the same."""
    url = terminal.environment["CLOCKHOUSE_API_URL"]
    for path, status in (("/v1/jobs/job_none", 404), ("/v1/api-keys/none", 404), ("/v1/nothing/here", 404)):
        said = terminal.run(
            "curl", "-sS", "-i", url + path, "-H", "X-Request-Id: mine-17",
            "-H", f"Authorization: Bearer {terminal.environment['CLOCKHOUSE_API_KEY']}",
        )  # fmt: skip
        head, _, body = said.replace("\r\n", "\n").partition("\n\n")
        assert "x-request-id: mine-17" in head.lower()
        problem = json.loads(body)
        assert (problem["status"], problem["request_id"]) == (status, "mine-17"), path
