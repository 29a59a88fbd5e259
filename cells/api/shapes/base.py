"""The base of every shape, and problem documents."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """An answer. Members may be added to it later; clients ignore what they do not know."""

    model_config = ConfigDict(extra="allow")


class ListShape(Shape):
    """A page of a list that may have parts in several stores of a cell."""

    unreachable_regions: list[str] | None = Field(
        default=None,
        description="Only where it is not empty: regions that do not answer; what is kept there alone"
        " (SINGLE_REGION) is not in this page.",
    )


class SpreadShape(Shape):
    """What was chosen by a filter, in each store of the cell by itself."""

    elsewhere: list[dict[str, Any]] | None = Field(
        default=None,
        description="Only where the tenant has things that are kept in one region alone (SINGLE_REGION): the"
        " same of those, each with ids of its own.",
    )
    unreachable_regions: list[str] | None = Field(
        default=None,
        description="Only where it is not empty: regions that do not answer; nothing was done there.",
    )


class Fault(Shape):
    """One fault, at a place of the body, the query or the headers."""

    pointer: str | None = Field(None, description="JSON pointer (RFC 6901) into the body.")
    parameter: str | None = Field(None, description="Name of a query parameter.")
    header: str | None = Field(None, description="Name of a header.")
    detail: str


class Problem(Shape):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:clockhouse:problem:invalid",
                    "title": "The request is not valid",
                    "status": 422,
                    "detail": "1 fault; see errors.",
                    "code": "INVALID",
                    "errors": [{"pointer": "/schedule/cron", "detail": "minute: 61 is above 59"}],
                }
            ]
        },
    )

    type: str = Field(description="`urn:clockhouse:problem:` and the code in lower case with hyphens.")
    title: str = Field(description="What the code means; the same for each.")
    status: int
    detail: str
    code: str = Field(description="What programs decide by.")
    errors: list[Fault] | None = None
    request_id: str | None = Field(
        default=None, description="What our logs call the request; the header X-Request-Id, too."
    )


class Waiting(Shape):
    """Why something that is due has not begun."""

    because: Literal["target", "quota", "paused", "budget"] = Field(
        description="target: it cannot take the call now; quota: of running runs; paused: all of the "
        "tenant's work; budget: it is spent, and LOW work waits."
    )
    target_id: str | None
    reason: str = Field(description="The same for people.")
    until: datetime | None = Field(description="When it is tried again, where that is known.")
