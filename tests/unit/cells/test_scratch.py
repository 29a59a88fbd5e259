"""Folders for a while: whoever is killed leaves them behind, and the next one removes them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cells import scratch
from cells.scratch import Scratch, forget_the_dead, scratch_folder

_HOLDER = """
import time
from cells.scratch import Scratch
folder = Scratch("history")
(folder.path / "file").write_text("x")
print(folder.path, flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_YOUNG_SECONDS", -1.0)


def test_it_ends_with_its_block() -> None:
    with scratch_folder("lake") as folder:
        (folder / "file").write_text("x")
        assert forget_the_dead() == 0
        assert folder.exists()
    assert not folder.exists()


def test_a_killed_one_leaves_nothing_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Scratch("history")
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLDER],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    theirs = Path(other.stdout.readline().strip())
    (tmp_path / "clockhouse-cell-file").write_text("no folder")
    assert forget_the_dead() == 0
    other.send_signal(signal.SIGKILL)
    other.wait()
    monkeypatch.setattr(scratch, "_YOUNG_SECONDS", 60.0)
    assert forget_the_dead() == 0, "it may be about to be held"
    monkeypatch.setattr(scratch, "_YOUNG_SECONDS", -1.0)
    assert forget_the_dead() == 1
    assert not theirs.exists()
    assert mine.path.exists()
    mine.close()
    mine.close()
    assert not mine.path.exists()
