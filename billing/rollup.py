"""Adds the ledger up into hours, days and months. Always whole ones, from what lies below: running
it twice, or half and then again, changes nothing.

Days of a closed month are not touched: what became known of them later is kept as an adjustment
of the first month that is not closed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from django.db import connection, transaction

from billing.sql import named_sql

_SQL = named_sql("rollup")


@dataclass(frozen=True, slots=True)
class Dirty:
    """A day whose records changed, and the marks by which that was seen."""

    tenant_id: uuid.UUID
    day: date
    hours: int
    marks: int


def recompute_dirty(batch: int = 200) -> int:
    """Goes once through the days whose records changed; how many were added up."""
    total, place = 0, (date.min, uuid.UUID(int=0))
    while days := _dirty("dirty", {"day": place[0], "after": place[1], "limit": batch}):
        with transaction.atomic():
            recompute(days)
        _clean(days)
        total, place = total + len(days), (days[-1].day, days[-1].tenant_id)
    return total


def recompute_range(tenant_id: uuid.UUID, since: date, until: date) -> None:
    """Adds up a tenant's marked days in [since, until), within the caller's transaction."""
    days = _dirty("dirty_of_tenant", {"tenant_id": tenant_id, "since": since, "until": until})
    recompute(days)
    _clean(days)


def recompute(days: Sequence[Dirty]) -> None:
    """Adds days up, within the caller's transaction."""
    if not days:
        return
    with connection.cursor() as cursor:
        cursor.execute(_SQL["lock_tenants"], {"tenant_id": [d.tenant_id for d in days]})
        cursor.execute(_SQL["open_periods"], _columns(days))
        cursor.execute(_SQL["of_closed"], _columns(days))
        closed = set(cursor.fetchall())
        late = [d for d in days if (d.tenant_id, d.day) in closed]
        due = [d for d in days if (d.tenant_id, d.day) not in closed]
        if due:
            cursor.execute(_SQL["hours"], {**_columns(due), "hours": [d.hours for d in due]})
            cursor.execute(_SQL["days"], _columns(due))
            cursor.execute(_SQL["months"], _columns(due))
        if late:
            cursor.execute(_SQL["open_next"], _columns(late))
            cursor.execute(_SQL["adjust"], _columns(late))


def _dirty(statement: str, parameters: dict[str, object]) -> list[Dirty]:
    with connection.cursor() as cursor:
        cursor.execute(_SQL[statement], parameters)
        return [Dirty(*row) for row in cursor.fetchall()]


def _clean(days: Sequence[Dirty]) -> None:
    """Marks go after the sums are written: whoever dies in between leaves them to be added up again."""
    if days:
        with connection.cursor() as cursor:
            cursor.execute(_SQL["clean"], {**_columns(days), "marks": [d.marks for d in days]})


def _columns(days: Sequence[Dirty]) -> dict[str, object]:
    return {"tenant_id": [d.tenant_id for d in days], "day": [d.day for d in days]}
