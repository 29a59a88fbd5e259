"""`clockhouse` is what users import: the client under a name of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import clockhouse
import controlplane.client

ROOT = Path(__file__).resolve().parents[4]


def test_it_has_all_the_names_of_the_client_and_the_same_objects() -> None:
    assert clockhouse.__all__ == controlplane.client.__all__
    for name in clockhouse.__all__:
        assert getattr(clockhouse, name) is getattr(controlplane.client, name)


def test_it_runs_the_command_line() -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "controlplane/client/package")])
    said = subprocess.run(
        [sys.executable, "-m", "clockhouse", "--version"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}, cwd="/",
    ).stdout  # fmt: skip
    assert said.startswith("clockhouse")


def test_it_is_installed_under_that_name_alone() -> None:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    assert found["where"] == [".", "controlplane/client/package"]
    assert "clockhouse*" in found["include"]
    assert found["exclude"] == ["controlplane.client.package*"]
    folders = [
        each.name for each in (ROOT / "controlplane/client/package").iterdir() if each.name[0] not in "._"
    ]
    assert folders == ["clockhouse"]
