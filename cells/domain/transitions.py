"""The lives of jobs and runs, as data.

The store has one SQL statement per transition; the CHECKs of its tables mirror the state sets
below; the diagrams in the README are rendered from these tables.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cells.domain.job import JobState
from cells.domain.run import TERMINAL, RunState

S = TypeVar("S", bound=enum.StrEnum)


@dataclass(frozen=True, kw_only=True, slots=True)
class Transition(Generic[S]):
    """A named move. A source of None means that there is no row yet."""

    name: str
    sources: frozenset[S | None]
    destination: S
    comment: str


def _run(name: str, sources: Iterable[RunState | None], to: RunState, comment: str) -> Transition[RunState]:
    return Transition(name=name, sources=frozenset(sources), destination=to, comment=comment)


def _job(name: str, sources: Iterable[JobState | None], to: JobState, comment: str) -> Transition[JobState]:
    return Transition(name=name, sources=frozenset(sources), destination=to, comment=comment)


R = RunState
RUN_TRANSITIONS: tuple[Transition[RunState], ...] = (
    _run("trigger", [None], R.DUE, "started by hand or ad hoc, due at once"),
    _run("buffer", [None], R.DUE, "waits for the occurrence before it to end"),
    _run("park", [None, R.READY], R.DUE, "waits for a place of its concurrency key"),
    _run("backfill", [None, R.SKIPPED], R.DUE, "an occurrence of the past that is to run after all"),
    _run("offer", [None, R.DUE, R.RETRY_WAIT], R.READY, "may be polled by a pull worker"),
    _run("claim", [None, R.DUE, R.READY, R.RETRY_WAIT], R.RUNNING, "epoch + 1, leased to its claimer"),
    _run("skip", [None], R.SKIPPED, "an occurrence that deliberately does not run"),
    _run("succeed", [R.RUNNING], R.SUCCEEDED, "the target said 2xx"),
    _run("retry", [R.RUNNING], R.RETRY_WAIT, "the attempt failed and there are more"),
    _run("fail", [R.RUNNING], R.FAILED, "no attempt left, or a retry would not help; to the DLQ"),
    _run("lose", [R.RUNNING], R.RETRY_WAIT, "its executor died or lost its lease; costs no attempt"),
    _run("poison", [R.RUNNING], R.FAILED, "too many executors died with it; to the DLQ"),
    _run("release", [R.RUNNING], R.RETRY_WAIT, "given back uncalled; costs no attempt"),
    _run("give_back", [R.RUNNING], R.READY, "its worker gave it back undone; costs no attempt"),
    _run("doubt", [R.RUNNING], R.UNKNOWN, "at most once, and nobody knows; to the DLQ"),
    _run("cancel", [R.DUE, R.READY, R.RETRY_WAIT], R.CANCELLED, "nothing was under way"),
    _run("stop", [R.RUNNING], R.CANCELLED, "cancelled while under way, and it did not succeed"),
    _run("succeed_anyway", [R.RUNNING], R.SUCCEEDED_AFTER_CANCEL, "the call could not be recalled"),
    _run("redrive", [R.FAILED, R.UNKNOWN], R.DUE, "a new attempt series with the same key"),
)

J = JobState
JOB_TRANSITIONS: tuple[Transition[JobState], ...] = (
    _job("create", [None], J.ACTIVE, "waits for its first occurrence"),
    _job("create_done", [None], J.DONE, "its only occurrence is past and its policy skips it"),
    _job("edit", [J.ACTIVE], J.ACTIVE, "a new version"),
    _job("edit_paused", [J.PAUSED], J.PAUSED, "a new version"),
    _job("edit_done", [J.DONE], J.DONE, "a new version, for runs by hand"),
    _job("advance", [J.ACTIVE], J.ACTIVE, "an occurrence was claimed; waits for the next"),
    _job("finish", [J.ACTIVE], J.DONE, "the last occurrence was claimed"),
    _job("pause", [J.ACTIVE], J.PAUSED, "no timer while it is paused"),
    _job("resume", [J.PAUSED], J.ACTIVE, "from the next occurrence after now"),
    _job("resume_done", [J.PAUSED], J.DONE, "nothing is left to run"),
    _job("cancel", [J.ACTIVE, J.PAUSED], J.CANCELLED, "ended by somebody"),
    _job("revive", [J.CANCELLED, J.DONE], J.ACTIVE, "declared again under its key"),
)

TRANSITIONS: tuple[Transition[RunState] | Transition[JobState], ...] = (*RUN_TRANSITIONS, *JOB_TRANSITIONS)

#: States in which `timer_at` is set: waiting for a claim at a known time.
RUN_TIMED: frozenset[RunState] = frozenset({R.DUE, R.RETRY_WAIT})
#: States in which `lease_expires_at` is set.
RUN_LEASED: frozenset[RunState] = frozenset({R.RUNNING})
#: States in which `finished_at` is set.
RUN_FINISHED: frozenset[RunState] = TERMINAL
#: States in which a job's `due_at` is set.
JOB_TIMED: frozenset[JobState] = frozenset({J.ACTIVE})

_RUN_SOURCES = {t.name: t.sources for t in RUN_TRANSITIONS}
_JOB_SOURCES = {t.name: t.sources for t in JOB_TRANSITIONS}


def run_allowed(name: str, state: RunState | None) -> bool:
    """Whether a run in `state` (None: no row) may make the named move."""
    return state in _RUN_SOURCES[name]


def job_allowed(name: str, state: JobState | None) -> bool:
    """Whether a job in `state` (None: no row) may make the named move."""
    return state in _JOB_SOURCES[name]


def allowed(name: str, state: RunState | JobState) -> bool:
    """Whether a run or job in `state` may make the named move."""
    return job_allowed(name, state) if isinstance(state, JobState) else run_allowed(name, state)


def sources(transitions: Iterable[Transition[S]], destination: S) -> frozenset[S | None]:
    """Every state from which `destination` is reached in one move."""
    return frozenset(s for t in transitions if t.destination is destination for s in t.sources)


def diagram(transitions: Iterable[Transition[S]]) -> str:
    """A Mermaid state diagram, one line per arrow, in the table's order."""
    table = tuple(transitions)
    arrows = [
        f"    {source or '[*]'} --> {t.destination}: {t.name}"
        for t in table
        for source in sorted(t.sources, key=lambda s: s or "")
    ]
    moving = {source for t in table for source in t.sources}
    ends = sorted({t.destination for t in table} - moving)
    return "\n".join(["stateDiagram-v2", *arrows, *(f"    {state} --> [*]" for state in ends)])
