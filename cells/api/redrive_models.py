"""The bodies and queries of what is done with dead letters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from cells.api.queries import Page
from cells.api.selection_models import NAMED_LIMIT, RATE_LIMIT, checked_job_id
from cells.api.texts import Body, Moment, Term
from cells.domain import ids


def _run_id(text: str) -> str:
    if ids.parse_run_id(text) is None:
        raise PydanticCustomError("run_id", "is not the id of a run")
    return text


class LetterFilterIn(Body):
    """Which open dead letters; all conditions hold. Without any: all of them."""

    target_id: Term | None = None
    fingerprint: Term | None = None
    job_id: Annotated[str, AfterValidator(checked_job_id)] | None = None
    reason: Literal["FAILED", "UNKNOWN", "POISON"] | None = None
    failed_after: Moment | None = Field(default=None, description="At this instant, or later.")
    failed_before: Moment | None = None
    run_ids: list[Annotated[str, AfterValidator(_run_id)]] | None = Field(
        default=None, min_length=1, max_length=NAMED_LIMIT
    )


class LettersIn(Body):
    """Which letters, and how. With a `selection_id` and its `hash`: exactly those that were looked at."""

    filter: LetterFilterIn | None = None
    selection_id: Term | None = None
    hash: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = Field(
        default=None, description="As the selection said it."
    )
    dry_run: bool = Field(default=False, description="Only freeze the selection, and show it.")
    max_per_second: int = Field(default=50, ge=1, le=RATE_LIMIT)

    @model_validator(mode="after")
    def _one_choice(self) -> LettersIn:
        if (self.selection_id is None) != (self.hash is None):
            raise PydanticCustomError("letters", "needs selection_id and hash together")
        if self.selection_id is not None and (self.filter is not None or self.dry_run):
            raise PydanticCustomError("letters", "takes either a selection_id or a filter")
        return self


class RedriveQuery(Page):
    """Which redrives and purges to list."""

    state: Literal["RUNNING", "STOPPED", "DONE"] | None = None
    action: Literal["redrive", "purge"] | None = None
