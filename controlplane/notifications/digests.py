"""What rules with a digest were told of is put into their digests here, by whoever sends.

Whoever tells only notes that the rule has the event: a digest is one row, and all transactions that tell of
something would wait for it one after the other.
"""

from __future__ import annotations

from pathlib import Path

from django.db import connection, transaction

from controlplane.identity import new_id
from controlplane.notifications.backoff import GIVEN_UP
from controlplane.sql import named_sql

_SQL = named_sql(Path(__file__).parent / "sql" / "notifications.sql")
#: Events of one digest; a fuller one is sent at once, and another begins.
MOST_IN_A_DIGEST = 50
#: Events put into digests in one transaction.
_PAGE = 500


def gather() -> int:
    """Puts everything noted into digests; how many events. What a rule that was disabled meanwhile had not
    sent is not told."""
    gathered = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_SQL["forget_uncollected"], {"page": _PAGE})
            cursor.execute(_SQL["uncollected"], {"page": _PAGE})
            noted = cursor.fetchall()
            for claim, rule, kind, minutes in noted:
                cursor.execute(
                    _SQL["collect"],
                    {
                        "id": new_id(), "rule": rule, "kind": kind, "minutes": minutes,
                        "patience": GIVEN_UP, "most": MOST_IN_A_DIGEST,
                    },
                )  # fmt: skip
                (delivery,) = cursor.fetchone()
                cursor.execute(_SQL["put"], {"id": claim, "delivery": delivery})
        gathered += len(noted)
        if len(noted) < _PAGE:
            return gathered
