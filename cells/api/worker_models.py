"""The bodies of pull workers."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue, StringConstraints

from cells.api.pulled import Outcome
from cells.api.texts import Body, plain, prose
from cells.domain.run import RESULT_LIMIT

#: What a poll may bring, and how long it may wait (seconds).
MAX_TASKS, MAX_WAIT_SECONDS = 1000, 30
#: Claims in one bulk request.
MAX_BULK = 1000
#: Progress as JSON (bytes).
PROGRESS_LIMIT = 4096

WorkerId = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(plain)]
RunIdText = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Epoch = Annotated[int, Field(ge=0, lt=1 << 63)]
ErrorText = Annotated[str, StringConstraints(min_length=1, max_length=4096), AfterValidator(prose)]


class PollIn(Body):
    """A worker asks for tasks."""

    worker_id: WorkerId = Field(description="Shown to people; one per process.", examples=["ledger-7f9c-1"])
    wait_seconds: int = Field(
        default=20,
        ge=0,
        le=MAX_WAIT_SECONDS,
        description="How long the answer is held back for a first task.",
    )
    max_tasks: int = Field(default=1, ge=1, le=MAX_TASKS)


class GoodbyeIn(Body):
    """A worker leaves."""

    worker_id: WorkerId


class HeartbeatIn(Body):
    """A worker is alive, and how far it is."""

    epoch: Epoch
    progress: JsonValue = Field(
        default=None, description=f"Any JSON of at most {PROGRESS_LIMIT} bytes; kept if absent or null."
    )


class CompleteIn(Body):
    """How the work ended."""

    epoch: Epoch
    outcome: Outcome
    result: JsonValue = Field(
        default=None,
        description="Kept with the attempt, its first 4 KiB. Of a step of a workflow that gets all of it: "
        f"{RESULT_LIMIT // 1024} KiB at most, a longer one fails the step for good.",
    )
    error: ErrorText | None = Field(default=None, description="FAILED: why.")
    retryable: bool = Field(default=True, description="FAILED: whether another attempt may help.")


class ReleaseIn(Body):
    """A claim goes back undone."""

    epoch: Epoch


class HeartbeatItem(HeartbeatIn):
    """A heartbeat of one run."""

    run_id: RunIdText


class CompleteItem(CompleteIn):
    """The end of one run."""

    run_id: RunIdText


class HeartbeatsIn(Body):
    """Many heartbeats at once."""

    items: list[HeartbeatItem] = Field(min_length=1, max_length=MAX_BULK)


class CompletesIn(Body):
    """Many ends at once."""

    items: list[CompleteItem] = Field(min_length=1, max_length=MAX_BULK)
