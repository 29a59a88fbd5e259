"""Whether a tenant lived on a cell in a minute."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from billing.ingest import SKEW, lived

TENANT = uuid.uuid4()
MINUTE = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("since", "until", "there"),
    [
        (MINUTE - timedelta(days=1), None, True),
        (MINUTE + 59 * SECOND, None, True),
        (MINUTE + 60 * SECOND + SKEW, None, False),
        (MINUTE - timedelta(days=1), MINUTE + SECOND, True),
        (MINUTE - timedelta(days=1), MINUTE - SKEW, False),
        (MINUTE + 10 * SECOND, MINUTE + 20 * SECOND, True),
    ],
)
def test_stays_touch_minutes(since: datetime, until: datetime | None, there: bool) -> None:
    assert lived([(TENANT, "c", since, until)], "c", MINUTE) is there
    assert lived([(TENANT, "c", since, until)], None, MINUTE) is there
    assert not lived([(TENANT, "c", since, until)], "d", MINUTE)


def test_nowhere() -> None:
    assert not lived([], "c", MINUTE)
    assert not lived([], None, MINUTE)
