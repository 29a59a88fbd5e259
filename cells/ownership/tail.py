"""What a region wrote that no other had received when its cell was taken over: the rows of its journal that
the new owner lacks. Read from the region's own cluster while that is fenced. Blocking.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from cells.named_sql import load
from cells.ownership.cell_row import RowAway

_SQL = load(Path(__file__).parent / "sql")
_PAGE = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TailRow:
    """A transaction that only the old owner has. `body`: what it did (`cells.records.JournalBody`)."""

    host_id: int
    seq: int
    at: datetime
    epoch: int
    body: bytes

    def line(self) -> bytes:
        """The row as a line of JSON."""
        return msgspec.json.encode(
            {
                "host_id": self.host_id,
                "seq": self.seq,
                "at": self.at,
                "epoch": self.epoch,
                "did": msgspec.Raw(self.body),
            }
        )


def tail_of(own_url: str, *, owner_url: str, epoch: int) -> list[TailRow]:
    """The rows that the cluster at `own_url` has under epochs before `epoch` and the owner's lacks."""
    with connected(own_url) as own, connected(owner_url) as owner:
        since = _one(owner, "tail_from", {"epoch": epoch})
        found: list[TailRow] = []
        page: list[TailRow] = []
        for row in own.execute(_SQL["tail_rows"], {"since": since}):
            page.append(TailRow(host_id=row[0], seq=row[1], at=row[2], epoch=row[3], body=bytes(row[4])))
            if len(page) == _PAGE:
                found += _unknown(owner, page, since, epoch)
                page = []
        return found + _unknown(owner, page, since, epoch)


def was_handed_in(own_url: str, *, region: str, epoch: int) -> bool:
    """Whether the cluster at `own_url` knows that all of a region's tail came to the owner under `epoch`."""
    with connected(own_url) as own:
        return own.execute(_SQL["return_read"], {"region": region, "epoch": epoch}).fetchone() is not None


def _unknown(
    owner: psycopg.Connection[tuple[Any, ...]], page: list[TailRow], since: object, epoch: int
) -> list[TailRow]:
    values = {
        "hosts": [row.host_id for row in page],
        "seqs": [row.seq for row in page],
        "since": since,
        "epoch": epoch,
    }
    known = set(owner.execute(_SQL["tail_known"], values).fetchall())
    return [row for row in page if (row.host_id, row.seq) not in known]


def _one(connection: psycopg.Connection[tuple[Any, ...]], name: str, values: dict[str, object]) -> object:
    row = connection.execute(_SQL[name], values).fetchone()
    return None if row is None else row[0]


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """One of the two databases, while a tail is read; `RowAway` where it does not answer."""
    try:
        with psycopg.connect(
            url, autocommit=True, connect_timeout=3, options="-c timezone=UTC -c statement_timeout=60000"
        ) as connection:
            yield connection
    except psycopg.OperationalError as fault:
        raise RowAway(str(fault).strip()[:300]) from fault
