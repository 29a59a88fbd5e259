"""Instants in bodies and in queries are read alike."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from cells.api.models import PreviewIn
from cells.api.queries import JobQuery


def body(after: str) -> PreviewIn:
    return PreviewIn.model_validate_json('{"schedule": {"type": "NOW"}, "after": ' + after + "}")


def test_an_instant_is_read_from_a_body_and_from_a_query() -> None:
    at = datetime(2030, 6, 1, 11, 58, 29, tzinfo=UTC)
    assert body('"2030-06-01T11:58:29Z"').after == at
    assert body('"2030-06-01T13:58:29+02:00"').after == at
    assert JobQuery(due_from="2030-06-01T11:58:29Z").due_from == at  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other", ["1", "1.5", "true", "{}", "[]", '"1700000000"', '"soon"', '"2030-06-01T11:58:29"']
)
def test_nothing_else_is_an_instant(other: str) -> None:
    with pytest.raises(ValidationError):
        body(other)
