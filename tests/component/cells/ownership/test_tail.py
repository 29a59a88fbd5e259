"""What an old owner wrote that the new one lacks, between two real databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg

from cells.ownership.tail import TailRow, tail_of
from cells.store.migrate import migrate

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
EPOCH = 7


def _wrote(url: str, seq: int, *, after: timedelta = timedelta(), epoch: int = EPOCH - 1) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO journal (at, host_id, seq, epoch, body) VALUES (%s, 1, %s, %s, '{}')",
            (AT + after, seq, epoch),
        )


def _seqs(rows: list[TailRow]) -> list[int]:
    return [row.seq for row in rows]


def test_an_owner_that_received_nothing_lacks_all(cell_database_url: str, empty_database_url: str) -> None:
    migrate(empty_database_url)
    _wrote(cell_database_url, 1)
    _wrote(cell_database_url, 2, after=timedelta(days=1))
    assert _seqs(tail_of(cell_database_url, owner_url=empty_database_url, epoch=EPOCH)) == [1, 2]


def test_rows_that_both_have_are_no_tail(cell_database_url: str, empty_database_url: str) -> None:
    migrate(empty_database_url)
    for url in (cell_database_url, empty_database_url):
        _wrote(url, 1)
        _wrote(url, 3, after=timedelta(seconds=30))
    # It was under way while a later one had been received.
    _wrote(cell_database_url, 2, after=timedelta(seconds=20))
    _wrote(cell_database_url, 4, after=timedelta(seconds=40))
    # The new owner gives the same numbers anew, under its own epoch.
    _wrote(empty_database_url, 4, after=timedelta(seconds=40), epoch=EPOCH)
    rows = tail_of(cell_database_url, owner_url=empty_database_url, epoch=EPOCH)
    assert _seqs(rows) == [2, 4]
    assert rows[0].line().startswith(b'{"host_id":1,"seq":2,')
