"""The queries of lists and reads. Values arrive as text and are read as the type says."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from cells.api.pagination import CURSOR_LIMIT, DEFAULT_LIMIT, MAX_LIMIT
from cells.api.texts import Moment, Name, PriorityName, Tag, Term
from cells.domain.job import JobState
from cells.domain.run import RunState


class Query(BaseModel):
    """The query of a request. Values arrive as text and are read as the type says."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Page(Query):
    """One page of a list."""

    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)
    cursor: str | None = Field(
        default=None, max_length=CURSOR_LIMIT, description="`next_cursor` of the page before."
    )


class JobQuery(Page):
    """Which jobs to list; all conditions hold."""

    state: Literal["ACTIVE", "SCHEDULED", "PAUSED", "CANCELLED", "DONE", "COMPLETED"] | None = None
    target: Term | None = None
    tag: Tag | None = None
    name_prefix: Name | None = None
    due_from: Moment | None = None
    due_until: Moment | None = None
    include: Literal["last_run"] | None = Field(
        default=None, description="`last_run`: each job with the latest of its runs of about a month."
    )

    def job_state(self) -> JobState | None:
        """The state asked for, whichever of its two names was used."""
        if self.state is None:
            return None
        shown = {"SCHEDULED": JobState.ACTIVE, "COMPLETED": JobState.DONE}
        return shown.get(self.state) or JobState(self.state)


_STATES = "|".join(RunState)


def _in_order(text: str) -> str:
    """The same choice is the same text, as a cursor's filters are compared."""
    asked = text.split(",")
    if unknown := [name for name in asked if name not in RunState.__members__]:
        known = ", ".join(RunState)
        raise PydanticCustomError(
            "states",
            "must be one of {known}, or several of them separated by commas; {unknown} is none",
            {"known": known, "unknown": unknown[0][:40] or "an empty one"},
        )
    return ",".join(state for state in RunState if state in asked)


StateNames = Annotated[
    str,
    AfterValidator(_in_order),
    WithJsonSchema(
        {"type": "string", "pattern": f"^({_STATES})(,({_STATES}))*$", "examples": ["FAILED,UNKNOWN"]}
    ),
]


class RunQuery(Page):
    """Which runs to list, newest scheduled first; all conditions hold. Ranges are [from, until)."""

    job_id: Term | None = None
    state: StateNames | None = Field(
        default=None, description="One, or several separated by commas: a run in any of them."
    )
    target: Term | None = None
    scheduled_from: Moment | None = None
    scheduled_until: Moment | None = None
    due_from: Moment | None = Field(
        default=None, description="Means `scheduled_from` a day earlier, unless that is given."
    )
    due_until: Moment | None = None
    finished_from: Moment | None = Field(
        default=None,
        description="Runs that ended then; means `scheduled_from` a day earlier, unless that is given.",
    )
    finished_until: Moment | None = None

    def states(self) -> tuple[RunState, ...]:
        """The states asked for; none: any."""
        return tuple(RunState(name) for name in self.state.split(",")) if self.state else ()


class LedgerQuery(Page):
    """Which occurrences of a job: scheduled in [from, until)."""

    since: Moment | None = Field(default=None, alias="from")
    until: Moment | None = None
    count: int = Field(default=10, ge=0, le=100, description="Of the coming ones.")


class TargetQuery(Page):
    """Which targets to list."""

    state: Literal["PENDING", "APPROVED", "DISABLED", "GONE"] | None = None


class DlqQuery(Page):
    """Which dead letters to list."""

    target: Term | None = None
    fingerprint: Term | None = None
    job_id: Term | None = None
    reason: Literal["FAILED", "UNKNOWN", "POISON"] | None = None
    failed_from: Moment | None = None
    failed_until: Moment | None = None
    groups: bool = Field(default=True, description="false: the first page is without groups, too.")


class EventQuery(Query):
    """Which events."""

    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)
    cursor: str | None = Field(
        default=None, max_length=CURSOR_LIMIT, description="`next_cursor` of the answer before, or `start`."
    )
    type: Term | None = Field(default=None, description="`job.paused`, or `job` for all that begin so.")
    wait: int = Field(default=0, ge=0, le=20, description="Seconds to wait for the first event.")


class HerdQuery(Query):
    """Which part of what is to come."""

    hours: int = Field(default=24, ge=1, le=48)
    target: Term | None = None
    priority: PriorityName | None = None


class StatsQuery(Query):
    """Which minutes."""

    since: Moment | None = Field(default=None, description="An hour ago, if absent.")
    until: Moment | None = Field(default=None, description="Now, if absent.")
    target_id: Term | None = Field(default=None, description="Of this target alone.")
    job_id: Term | None = Field(default=None, description="Of this job alone.")


class DelaysQuery(Query):
    """Of which time."""

    since: Moment | None = Field(default=None, description="A day ago, if absent.")
    until: Moment | None = Field(default=None, description="The end of this minute, if absent.")


class ExactDelaysQuery(DelaysQuery):
    """Of which time, and whether as those who operate the cell may read it or as the tenant may."""

    exact: bool = True


class HealthQuery(Query):
    """How far back to look."""

    minutes: int = Field(default=15, ge=1, le=1440)
