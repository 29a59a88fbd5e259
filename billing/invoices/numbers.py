"""Numbers without gaps: taken under the series' lock, in the transaction that needs them."""

from __future__ import annotations

from django.conf import settings
from django.db import connection

from billing.sql import named_sql

_SQL = named_sql("invoices")
INVOICES = "invoice"
CREDIT_NOTES = "credit_note"
_MARKS = {INVOICES: "", CREDIT_NOTES: "C"}


def take_number(kind: str, issuer: str) -> tuple[int, str]:
    """The next sequence number and how people write it (`CH-000017`, `CH-C000003`). The last thing a
    transaction does before it writes its document: others wait for it."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["next_number"], {"issuer": issuer, "kind": kind})
        (sequence,) = cursor.fetchone()
    return sequence, f"{settings.BILLING_ISSUER['prefix']}{_MARKS[kind]}{sequence:06d}"
