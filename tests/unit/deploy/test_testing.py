"""Groups of tests: each is run and shown as a whole, whatever becomes of the others."""

from __future__ import annotations

import sys

import pytest

from deploy import testing
from deploy.testing import Group, run_stage


def group(name: str, code: str) -> Group:
    return Group(name=name, commands=([sys.executable, "-c", code],))


def test_groups_beside_each_other_are_shown_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    lines = (
        "import sys\nfor n in range(200): print('{}', n, file=[sys.stdout, sys.stderr][n % 2], flush=True)"
    )
    outcomes = run_stage([group(name, lines.format(name)) for name in ("one", "two")])
    assert {(outcome.name, outcome.well) for outcome in outcomes} == {("one", True), ("two", True)}
    shown = capsys.readouterr().out.split("\n=== ")[1:]
    assert [part.splitlines()[0] for part in shown] == [outcome.name for outcome in outcomes]
    for part in shown:
        title, *said = part.strip().splitlines()
        assert said == [f"{title} {n}" for n in range(200)]


def test_one_that_fails_stops_nobody() -> None:
    outcomes = run_stage([group("bad", "raise SystemExit(1)"), group("empty", "raise SystemExit(5)")])
    assert {outcome.name: outcome.well for outcome in outcomes} == {"bad": False, "empty": True}
    assert [outcome.well for outcome in run_stage([group("alone", "raise SystemExit(2)")])] == [False]


def test_what_is_started_keeps_its_compiled_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = "import sys; sys.exit(sys.dont_write_bytecode)"
    assert testing.run(group("kept", code)).well


def test_unknown_groups_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        testing.main(["unit", "untit"])
    assert "unknown: untit" in capsys.readouterr().err
