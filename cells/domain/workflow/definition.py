"""What a definition says, once it was found to be whole. `parsing.py` makes it from a text."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from cells.domain.workflow.expressions import Expression, Template

#: `max_attempts: unlimited`
UNLIMITED = 0


class OnTimeout(enum.StrEnum):
    """What a wait that nobody ended does."""

    COMPENSATE = "compensate"  # the workflow fails and undoes what it did
    FAIL = "fail"  # the workflow fails, and nothing is undone
    CONTINUE = "continue"  # the next step; the wait's result is null


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRetry:
    """How an activity is tried again."""

    max_attempts: int  # UNLIMITED, or how many
    initial_ms: int
    max_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One unit of work: pulled from a task queue, or pushed to a target."""

    task_queue: str | None = None
    type: str | None = None  # what a worker is to do, with task_queue
    target_id: str | None = None
    path: str = ""
    method: str = "POST"
    timeout_ms: int = 30_000
    retry: StepRetry
    input: Template | None = None  # None: the workflow's input


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitForSignal:
    """Waits until a signal of that name is there."""

    name: str
    timeout_ms: int | None = None
    on_timeout: OnTimeout = OnTimeout.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    """Waits for a while, or until an instant."""

    for_ms: int | None = None
    until: Template | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """All branches at once; it ends when all have."""

    branches: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """The same steps for each element of a list, so many at once."""

    over: Expression
    name: str  # what expressions inside call the element
    steps: tuple[Step, ...]
    max_concurrency: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorkflow:
    """A child."""

    definition: str
    version: int | None  # None: the newest when it starts
    input: Template | None
    wait: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinueAsNew:
    """Ends this execution and begins another of the same workflow, with an empty history."""

    input: Template | None


Do: TypeAlias = Activity | WaitForSignal | Sleep | Parallel | Map | StartWorkflow | ContinueAsNew


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step. Ids are unique in the whole definition."""

    id: str
    do: Do
    when: Expression | None = None
    compensate_with: str | None = None
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One version of a workflow's definition."""

    workflow: str
    version: int
    steps: tuple[Step, ...]
    compensations: dict[str, Step]
    region_policy: str = "HOME_ASYNC"
    compensation_deadline_ms: int | None = None  # None: the tenant's default
    output: Template | None = None  # None: the last step's result
    description: str = ""

    def walk(self) -> Iterator[Step]:
        """Every step, those inside others too, in the order of the text; no compensations."""
        yield from _walk(self.steps)


def _walk(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        if isinstance(step.do, Parallel):
            for branch in step.do.branches:
                yield from _walk(branch)
        elif isinstance(step.do, Map):
            yield from _walk(step.do.steps)
