"""The bodies and queries of bulk changes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from cells.api.queries import Page
from cells.api.texts import Body, Moment, Name, Tag, Term
from cells.domain import ids
from cells.domain.job import JobState

#: Jobs that can be named one by one.
NAMED_LIMIT = 1000
#: Jobs an operation may change in a second at most.
RATE_LIMIT = 1000


def checked_job_id(text: str) -> str:
    """The text, if it is the id of a job."""
    if ids.decode(ids.JOB, text) is None:
        raise PydanticCustomError("job_id", "is not the id of a job")
    return text


class FilterIn(Body):
    """Which jobs; all conditions hold. Without any: all jobs."""

    job_ids: list[Annotated[str, AfterValidator(checked_job_id)]] | None = Field(
        default=None, min_length=1, max_length=NAMED_LIMIT
    )
    state: Literal["ACTIVE", "SCHEDULED", "PAUSED"] | None = None
    target: Term | None = None
    tag: Tag | None = None
    name_prefix: Name | None = None
    due_from: Moment | None = None
    due_until: Moment | None = None

    def job_state(self) -> JobState | None:
        """The state asked for."""
        if self.state is None:
            return None
        return JobState.PAUSED if self.state == "PAUSED" else JobState.ACTIVE


class SelectionIn(Body):
    """Jobs to choose, and what is to be done with them."""

    action: Literal["pause", "resume", "cancel"]
    filter: FilterIn = FilterIn()


class ApplyIn(Body):
    """That selection and no other."""

    hash: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] = Field(
        description="As the selection said it."
    )
    max_per_second: int = Field(default=200, ge=1, le=RATE_LIMIT)


class OperationQuery(Page):
    """Which operations to list."""

    state: Literal["RUNNING", "STOPPED", "DONE"] | None = None
