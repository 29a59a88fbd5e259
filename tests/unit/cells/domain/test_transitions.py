"""The state machines, every (state, event) pair, and what mirrors them."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from cells.domain.job import JobState
from cells.domain.run import TERMINAL, RunState
from cells.domain.transitions import (
    JOB_TIMED,
    JOB_TRANSITIONS,
    RUN_FINISHED,
    RUN_LEASED,
    RUN_TIMED,
    RUN_TRANSITIONS,
    TRANSITIONS,
    allowed,
    diagram,
    job_allowed,
    run_allowed,
    sources,
)

ROOT = Path(__file__).parents[4]
SCHEMA = (ROOT / "cells/store/migrations/0001_cell.sql").read_text()

# Written out on purpose: a change of the table must be meant.
RUN_MOVES = {
    "trigger": {None},
    "buffer": {None},
    "park": {None, "READY"},
    "backfill": {None, "SKIPPED"},
    "offer": {None, "DUE", "RETRY_WAIT"},
    "claim": {None, "DUE", "READY", "RETRY_WAIT"},
    "skip": {None},
    "succeed": {"RUNNING"},
    "retry": {"RUNNING"},
    "fail": {"RUNNING"},
    "lose": {"RUNNING"},
    "poison": {"RUNNING"},
    "release": {"RUNNING"},
    "give_back": {"RUNNING"},
    "doubt": {"RUNNING"},
    "cancel": {"DUE", "READY", "RETRY_WAIT"},
    "stop": {"RUNNING"},
    "succeed_anyway": {"RUNNING"},
    "redrive": {"FAILED", "UNKNOWN"},
}
JOB_MOVES = {
    "create": {None},
    "create_done": {None},
    "edit": {"ACTIVE"},
    "edit_paused": {"PAUSED"},
    "edit_done": {"DONE"},
    "advance": {"ACTIVE"},
    "finish": {"ACTIVE"},
    "pause": {"ACTIVE"},
    "resume": {"PAUSED"},
    "resume_done": {"PAUSED"},
    "cancel": {"ACTIVE", "PAUSED"},
    "revive": {"CANCELLED", "DONE"},
}


def test_every_run_state_and_event() -> None:
    assert {t.name for t in RUN_TRANSITIONS} == RUN_MOVES.keys()
    for name, state in itertools.product(RUN_MOVES, (None, *RunState)):
        assert run_allowed(name, state) == (state in RUN_MOVES[name]), (name, state)
        if state is not None:
            assert allowed(name, state) == (state in RUN_MOVES[name])


def test_every_job_state_and_event() -> None:
    assert {t.name for t in JOB_TRANSITIONS} == JOB_MOVES.keys()
    for name, state in itertools.product(JOB_MOVES, (None, *JobState)):
        assert job_allowed(name, state) == (state in JOB_MOVES[name]), (name, state)
        if state is not None:
            assert allowed(name, state) == (state in JOB_MOVES[name])


def test_an_unknown_event_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        allowed("vanish", RunState.RUNNING)
    with pytest.raises(KeyError):
        allowed("succeed", JobState.ACTIVE)


def test_ends_are_left_only_by_a_redrive_a_backfill_or_a_revival() -> None:
    for t in RUN_TRANSITIONS:
        if t.name not in ("redrive", "backfill"):
            assert not t.sources & TERMINAL, t.name
    for state in (JobState.CANCELLED, JobState.DONE):
        left = [t.name for t in JOB_TRANSITIONS if state in t.sources and t.destination is not state]
        assert left == ["revive"]


def test_every_state_is_reached_and_explained() -> None:
    assert {t.destination for t in RUN_TRANSITIONS} == set(RunState)
    assert {t.destination for t in JOB_TRANSITIONS} == set(JobState)
    assert sources(RUN_TRANSITIONS, RunState.RUNNING) == {
        None,
        RunState.DUE,
        RunState.READY,
        RunState.RETRY_WAIT,
    }
    assert all(t.comment for t in TRANSITIONS)


def _table(name: str) -> str:
    return re.search(rf"CREATE TABLE {name} \((.*?)\n\)", SCHEMA, re.DOTALL)[1]


def _states(text: str) -> set[str]:
    return set(re.findall(r"'([A-Z_]+)'", text))


def test_the_schema_mirrors_the_states() -> None:
    runs, jobs = _table("runs"), _table("jobs")
    assert _states(re.search(r"CHECK \(state IN \((.*?)\)\)", runs, re.DOTALL)[1]) == set(RunState)
    assert _states(re.search(r"CHECK \(state IN \((.*?)\)\)", jobs, re.DOTALL)[1]) == set(JobState)


@pytest.mark.parametrize(
    ("table", "column", "states"),
    [
        ("runs", "timer_at", RUN_TIMED),
        ("runs", "lease_expires_at", RUN_LEASED),
        ("runs", "finished_at", RUN_FINISHED),
        ("jobs", "due_at", JOB_TIMED),
    ],
)
def test_the_schema_mirrors_what_each_state_has(table: str, column: str, states: frozenset[str]) -> None:
    check = re.search(rf"CHECK \(\({column} IS NOT NULL\) = \((state .*?'\)?)\)\)", _table(table), re.DOTALL)[
        1
    ]
    assert _states(check) == states


@pytest.mark.parametrize(("heading", "table"), [("runs", RUN_TRANSITIONS), ("jobs", JOB_TRANSITIONS)])
def test_the_readme_shows_the_diagram(heading: str, table: tuple) -> None:
    readme = (ROOT / "cells/domain/README.md").read_text()
    assert f"```mermaid\n{diagram(table)}\n```" in readme, f"render it again: diagram({heading.upper()})"
