"""Bodies and queries about workflows."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, JsonValue, StringConstraints

from cells.api.pagination import CURSOR_LIMIT
from cells.api.queries import Page, Query
from cells.api.texts import Body, Term, prose

WORKFLOW_ID_PATTERN = r"^[A-Za-z0-9_-]{1,128}$"
DEFINITION_NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$"
WorkflowId: TypeAlias = Annotated[str, StringConstraints(pattern=WORKFLOW_ID_PATTERN)]
DefinitionName: TypeAlias = Annotated[str, StringConstraints(pattern=DEFINITION_NAME_PATTERN)]
StatusName: TypeAlias = Literal[
    "RUNNING",
    "COMPENSATING",
    "COMPENSATION_STUCK",
    "COMPLETED",
    "COMPENSATED",
    "FAILED",
    "CANCELLED",
    "TERMINATED",
    "CONTINUED_AS_NEW",
]


#: What somebody says of what they do.
Reason: TypeAlias = Annotated[str, AfterValidator(prose)]
_OF_ANOTHER = "Of one execution of that id; the open one, else the latest, if it is left out."

#: Paths below /v1/workflows that are no workflow's.
RESERVED_IDS = frozenset({"reconciliation"})


class StartIn(Body):
    """A workflow to start."""

    workflow_id: WorkflowId = Field(description="Yours: the same start again is the same workflow.")
    definition: DefinitionName
    version: int | None = Field(default=None, ge=1, le=2**31 - 1, description="The newest by default.")
    input: JsonValue = None
    id_reuse: Literal["ALLOW_CLOSED", "REJECT"] = Field(
        default="ALLOW_CLOSED",
        description="Whether another start may use the id of a workflow that is closed. REJECT: 409.",
    )


class SignalIn(Body):
    """A signal."""

    signal_id: Term = Field(description="The same signal again changes nothing.")
    payload: JsonValue = None


class ReasonIn(Body):
    """Why."""

    reason: Reason | None = Field(default=None, max_length=500)
    run_id: str | None = Field(default=None, max_length=64, description=_OF_ANOTHER)


class ResetIn(Body):
    """Where to go on from."""

    step: Annotated[str, StringConstraints(min_length=1, max_length=200)] = Field(
        description="The step that runs again, with all behind it; `ship[2]` inside a map."
    )


class MigrateIn(Body):
    """Which version to go on under."""

    version: int = Field(ge=1, le=2**31 - 1)


class ResolveIn(Body):
    """What a stuck compensation comes to."""

    action: Literal["retry", "close"]
    note: Reason | None = Field(default=None, max_length=2000, description="Kept in the history.")
    run_id: str | None = Field(default=None, max_length=64, description=_OF_ANOTHER)


class WorkflowsQuery(Page):
    """Which workflows a list shows."""

    status: StatusName | None = None
    definition: DefinitionName | None = None
    prefix: WorkflowId | None = Field(default=None, description="What the workflow id begins with.")


class ReconciliationQuery(Query):
    """Which part of the report."""

    cursor: str | None = Field(
        default=None, max_length=CURSOR_LIMIT, description="`next_cursor` of the page before."
    )
    limit: int = Field(default=20, ge=1, le=50)


class WorkflowQuery(Query):
    """Which execution of a workflow id."""

    run_id: str | None = Field(default=None, max_length=64, description="An earlier one.")


class HistoryQuery(Query):
    """Which events."""

    run_id: str | None = Field(default=None, max_length=64, description="Of an earlier execution.")
    after: int = Field(default=0, ge=0, le=2**31 - 1, description="Behind this sequence.")
    limit: int = Field(default=200, ge=1, le=1000)


class DefinitionsQuery(Page):
    """Which definitions a list shows."""

    name: DefinitionName | None = None


class CheckQuery(Query):
    """Which open executions a check looks at."""

    cursor: str | None = Field(
        default=None,
        max_length=CURSOR_LIMIT,
        description="`next_cursor` of the page before, with the same candidate.",
    )
    limit: int = Field(default=1000, ge=1, le=1000, description="Executions of one page at most.")
