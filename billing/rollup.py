"""Adds the ledger up into days. Always the whole day, from records: running it twice, or
half and then again, changes nothing."""

from __future__ import annotations

from django.db import connection, transaction

from billing.sql import named_sql

_SQL = named_sql("usage")


def recompute_dirty(limit: int = 500) -> int:
    """Adds up some of the days whose records changed; says how many (0: none left)."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_SQL["take_dirty"], {"limit": limit})
        days = cursor.fetchall()
        if days:
            # A statement of its own: its snapshot begins after the marks were taken.
            cursor.execute(
                _SQL["recompute"], {"tenant_id": [t for t, _ in days], "day": [d for _, d in days]}
            )
    return len(days)
