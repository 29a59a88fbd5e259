"""A proof answers with one line, whatever it prints; the machine is its own meanwhile."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import prove
from deploy.home import ROOT
from deploy.lock import whole_machine


def _run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    (folder / "sample.py").write_text(f'"""A sample."""\nimport os\ndef main():\n    {code}\n')
    program = (
        "import sys, pathlib; from deploy import prove, lock\n"
        f"folder = pathlib.Path({str(folder)!r})\n"
        "import tests, types; package = types.ModuleType('tests.proofs'); package.__path__ = [str(folder)]\n"
        "sys.modules['tests.proofs'] = package\n"
        "prove.known.__defaults__ = (folder,)\n"
        "sys.exit(prove.main(['sample']))"
    )
    # A sample loads nothing, so it need not wait for whoever has the machine just now.
    environment = {**os.environ, "CLOCKHOUSE_MACHINE_LOCK_HELD": "1"}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_standard_output_is_one_line_of_json(tmp_path: Path) -> None:
    done = _run(tmp_path, "print('noise'); os.system('echo more noise'); return {'holds': True, 'n': 3}")
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout) == {"proof": "sample", "holds": True, "n": 3}
    assert "more noise" in done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("code", ["return {'holds': False}", "return {}", "return {'holds': 1}", "1 / 0"])
def test_what_does_not_hold_fails(tmp_path: Path, code: str) -> None:
    done = _run(tmp_path, code)
    assert json.loads(done.stdout)["holds"] is False
    assert done.returncode == 1


def test_an_unknown_proof_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert prove.main(["no-such"]) == 2
    assert "no proof 'no-such'" in capsys.readouterr().err


def test_the_machine_is_held_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOCKHOUSE_MACHINE_LOCK_HELD", raising=False)
    lock = tmp_path / "lock"
    with whole_machine("first", lock=lock):
        with whole_machine("what the first starts", lock=lock, patience_seconds=0):
            pass
        other = multiprocessing.get_context("spawn").Process(target=_take, args=(lock,))
        monkeypatch.delenv("CLOCKHOUSE_MACHINE_LOCK_HELD")
        other.start()
        other.join(30)
        assert other.exitcode == 7
    with whole_machine("after the first", lock=lock, patience_seconds=0):
        pass


def _take(lock: Path) -> None:
    try:
        with whole_machine("second", lock=lock, patience_seconds=0):
            pass
    except TimeoutError:
        sys.exit(7)
