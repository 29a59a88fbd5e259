"""The body of a calendar."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from cells.api.ics import MAX_BYTES
from cells.api.texts import Body, Name
from cells.domain.calendars import MAX_DATES, MAX_LABEL

WeekdayName = Literal["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


class NamedDateIn(Body):
    """An excluded date and what it is."""

    date: str = Field(max_length=10, examples=["2026-12-25"])
    name: Annotated[str, StringConstraints(max_length=MAX_LABEL)] | None = Field(
        default=None, examples=["Christmas Day"]
    )


class CalendarIn(Body):
    """What a calendar excludes: dates, an iCalendar file with whole-day events, days of the week."""

    name: Name | None = None
    dates: list[str | NamedDateIn] = Field(
        default_factory=list,
        max_length=MAX_DATES,
        description="Local dates, alone or with a name.",
        examples=[["2026-12-25", {"date": "2026-12-26", "name": "Boxing Day"}]],
    )
    ics: Annotated[str, StringConstraints(max_length=MAX_BYTES)] | None = Field(
        default=None, description="The text of an iCalendar file; its whole days join `dates`."
    )
    weekdays: list[WeekdayName] = Field(
        default_factory=list, max_length=7, description="Excluded in every week.", examples=[["SAT", "SUN"]]
    )
