"""The texts that bodies and queries consist of, with their limits and checks."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)
from pydantic_core import PydanticCustomError

from cells.api import paths

CALENDAR_ID_PATTERN = r"^cal_[A-Za-z0-9_\-]{1,64}$"
TARGET_ID_PATTERN = r"^tgt_[A-Za-z0-9_\-]{1,64}$"

QUEUE_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,99}$"

_DATE_FIRST = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_CONTROL_BUT_LINES = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def plain(text: str) -> str:
    if _CONTROL.search(text):
        raise PydanticCustomError("control", "must hold no control characters")
    return text


def prose(text: str) -> str:
    if _CONTROL_BUT_LINES.search(text):
        raise PydanticCustomError("control", "must hold no control characters but tabs and line ends")
    return text


def job_path(text: str) -> str:
    try:
        return paths.check_path(text, query=True)
    except ValueError as fault:
        raise PydanticCustomError("path", "{fault}", {"fault": str(fault)}) from None


def job_url(text: str) -> str:
    try:
        return paths.target_url(text)
    except ValueError as fault:
        raise PydanticCustomError("url", "{fault}", {"fault": str(fault)}) from None


def _written_moment(value: object) -> object:
    # Left to itself the reader takes a number for seconds since 1970.
    if not isinstance(value, str) or not _DATE_FIRST.match(value):
        raise PydanticCustomError("moment", "must be an instant such as 2026-09-28T07:00:00Z")
    return value


def _moment(value: datetime) -> datetime:
    # Outside of these years neither arithmetic nor storage is of any use to a scheduler.
    if not 1970 <= value.year <= 2200:
        raise PydanticCustomError("moment", "is outside of the years 1970 to 2200")
    return value.astimezone(UTC)


def target_base_url(text: str) -> str:
    try:
        return paths.base_url(text)
    except ValueError as fault:
        raise PydanticCustomError("base_url", "{fault}", {"fault": str(fault)}) from None


Name: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(plain)]
Tag: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(plain)]
Instant: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=64)]
ZoneName: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Term: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=128), AfterValidator(plain)]
TargetId: TypeAlias = Annotated[str, StringConstraints(pattern=TARGET_ID_PATTERN)]
QueueName: TypeAlias = Annotated[str, StringConstraints(pattern=QUEUE_NAME_PATTERN)]
CalendarId: TypeAlias = Annotated[str, StringConstraints(pattern=CALENDAR_ID_PATTERN)]
Credential: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[\x21-\x7e]+$")
]
# Not strict: what a validator has looked at is read as a Python value, and strict ones are no text.
Moment: TypeAlias = Annotated[
    AwareDatetime, Field(strict=False), BeforeValidator(_written_moment), AfterValidator(_moment)
]
PriorityName: TypeAlias = Literal["CRITICAL", "HIGH", "DEFAULT", "LOW"]


class Body(BaseModel):
    """A request body."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
