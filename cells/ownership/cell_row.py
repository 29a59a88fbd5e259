"""The cell's own row in its database: the owner's lease, and what a new owner sets right there. Blocking."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors

from cells.named_sql import load

_SQL = load(Path(__file__).parent / "sql")
_OPTIONS = (
    "-c timezone=UTC -c statement_timeout=5000 -c lock_timeout=3000 -c synchronous_commit=local"
    " -c idle_in_transaction_session_timeout=5000"
)


class RowAway(Exception):
    """The database does not answer, takes no writes, or is not set up yet."""


class RowSuperseded(Exception):
    """The database is under a later epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """A committed write, before which `clock` was read."""

    clock: datetime
    epoch: int  # the database is under


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """What a new owner found and set right."""

    adopted: int  # tenants that act under a new epoch
    abandoned: tuple[uuid.UUID, ...]  # tenants that had gone elsewhere
    fresh_leases: int  # tasks that workers held


class CellRow:
    """The row in the database at `url`."""

    def __init__(self, url: str) -> None:
        self._url = url

    @contextmanager
    def _connected(self, statement_ms: int | None = None) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        options = _OPTIONS if statement_ms is None else f"{_OPTIONS} -c statement_timeout={statement_ms}"
        try:
            with psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=3,
                options=options,
                application_name="clockhouse-owner",
            ) as connection:
                yield connection
        except (
            psycopg.OperationalError,
            errors.UndefinedTable,
            errors.UndefinedColumn,
            errors.ReadOnlySqlTransaction,
        ) as fault:
            raise RowAway(str(fault).strip()[:300]) from fault

    def probe(self) -> Probe:
        """Writes something and says when, by the database's own clock."""
        with self._connected() as connection:
            row = connection.execute(_SQL["probe"]).fetchone()
            if row is None:
                raise RowAway("no process of the cell has set its database up yet")
            return Probe(clock=row[0], epoch=row[1])

    def extend(self, probe: Probe, *, epoch: int, seconds: float) -> datetime:
        """Lets the cell's processes write for so long after the probe's clock, under `epoch`; until when.
        `RowSuperseded` where the database is under a later one."""
        until = probe.clock + timedelta(seconds=seconds)
        with self._connected() as connection:
            row = connection.execute(_SQL["extend"], {"epoch": epoch, "until": until}).fetchone()
            if row is None:
                raise RowSuperseded(f"the database is under a later epoch than {epoch}")
            extended: datetime = row[1]
            return extended

    def was_read(self, region: str, *, voted: int) -> None:
        """A site whose vote was given up after the epoch that it `voted` for has nothing that is not here."""
        with self._connected() as connection:
            if connection.execute(_SQL["unread_possible"]).fetchone() == (True,):
                connection.execute(_SQL["unread_read"], {"region": region, "voted": voted})

    def give_up(self, region: str, *, epoch: int, reason: str) -> bool:
        """What only that site has is not waited for any more; no where it is not waited for."""
        with self._connected() as connection:
            values = {"region": region, "epoch": epoch, "reason": reason}
            return connection.execute(_SQL["unread_give_up"], values).fetchone() is not None

    def unread(self) -> list[str]:
        """The sites that are waited for."""
        with self._connected() as connection:
            return [row[0] for row in connection.execute(_SQL["unread_regions"])]

    def close(self, *, epoch: int) -> None:
        """Ends the lease of `epoch` now. Transactions that are open fail; `extend` opens it again."""
        with self._connected() as connection:
            if connection.execute(_SQL["close"], {"epoch": epoch}).fetchone() is None:
                raise RowSuperseded(f"the database is not under epoch {epoch}")

    def settle(
        self, epochs: Mapping[uuid.UUID, int], *, lost: str, epoch: int = 0, passed_over: Sequence[str] = ()
    ) -> Settled:
        """Before the first lease of a new owner: `epochs` are all tenants whose rows name this cell, claimed
        under new epochs. What executors of the `lost` region held is noted: it may be called again.
        `passed_over`: sites without whose votes the takeover of `epoch` was decided; nothing STRICT is
        confirmed until they were read."""
        with self._connected(statement_ms=120_000) as connection, connection.transaction():
            tenants: Collection[uuid.UUID] = list(epochs)
            adopted = connection.execute(
                _SQL["adopt_tenants"], {"tenants": tenants, "epochs": list(epochs.values())}
            ).rowcount
            gone = connection.execute(_SQL["abandon_tenants"], {"tenants": tenants}).fetchall()
            fresh = connection.execute(_SQL["fresh_leases"]).rowcount
            if lost and connection.execute(_SQL["note_possible"]).fetchone() == (True,):
                connection.execute(_SQL["note_under_way"], {"region": lost})
            if passed_over and connection.execute(_SQL["unread_possible"]).fetchone() == (True,):
                noted = {"epoch": epoch, "lost": lost, "regions": list(passed_over)}
                connection.execute(_SQL["unread_note"], noted)
        return Settled(adopted=adopted, abandoned=tuple(row[0] for row in gone), fresh_leases=fresh)
