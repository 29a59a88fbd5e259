"""What moves of tenants ask of the database: sessions of their own, outside the pool.

Copying, comparing and waiting take long, and none of it may hold up or be held up by the cell's own work.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cells.contract import MoveSide
from cells.store.database import Connection, MappedErrors, Row, fetch_all, fetch_one, fetch_row, run
from cells.store.transfer_rows import TransferRow, transfer_row

__all__ = ["TransferRow", "TransferStore", "application_of"]

#: Both sides must write rows as text in one and the same way.
_SETTINGS = (
    "-c timezone=UTC -c datestyle=ISO -c intervalstyle=postgres -c bytea_output=hex -c extra_float_digits=1"
    " -c jit=off -c statement_timeout={ms} -c idle_in_transaction_session_timeout=60000"
)
_LONGEST_MS = 600_000
#: What of a database's address another cell needs.
_ADDRESS = ("host", "hostaddr", "port", "dbname", "sslmode", "sslrootcert")


def application_of(cell_name: str) -> str:
    """How the sessions of a cell's own work are called."""
    return f"clockhouse {cell_name}"


class TransferStore:
    """Statements of `sql/transfer.sql`."""

    def __init__(self, url: str, *, cell_name: str) -> None:
        self._url = url
        self.cell_name = cell_name

    def address(self) -> str:
        """Where another cell reads this database; no user and no password."""
        known = conninfo_to_dict(self._url)
        return make_conninfo("", **{name: known[name] for name in _ADDRESS if known.get(name)})

    @asynccontextmanager
    async def session(
        self, *, at: str | None = None, timeout_ms: int = _LONGEST_MS
    ) -> AsyncIterator[Connection]:
        """A session that commits each statement; to another cell's database if `at` names one."""
        with MappedErrors():
            connection: Connection = await AsyncConnection.connect(
                at or self._url,
                autocommit=True,
                connect_timeout=5,
                options=_SETTINGS.format(ms=timeout_ms),
                application_name="clockhouse transfer",
            )
            try:
                yield connection
            finally:
                await connection.close()

    # --- a side of a move --------------------------------------------------------------------
    async def get(
        self, connection: Connection, tenant: uuid.UUID, move: uuid.UUID, side: MoveSide
    ) -> TransferRow | None:
        """What is known of a side of a move."""
        row = await fetch_one(connection, "transfer_get", _of(tenant, move, side))
        return None if row is None else transfer_row(row)

    async def open(
        self,
        connection: Connection,
        tenant: uuid.UUID,
        move: uuid.UUID,
        side: MoveSide,
        *,
        attempt: int,
        peer: str,
        epoch: int,
        link: str,
        conninfo: str = "",
        facts: Mapping[str, object] | None = None,
    ) -> bool:
        """Begin an attempt; False where a later one, or one that has gone on, is there."""
        row = await fetch_one(
            connection,
            "transfer_open",
            {
                **_of(tenant, move, side),
                "attempt": attempt,
                "peer": peer,
                "epoch": epoch,
                "link": link,
                "conninfo": conninfo,
                "facts": msgspec.json.encode(facts or {}).decode(),
            },
        )
        return row is not None

    async def touch(self, connection: Connection, tenant: uuid.UUID, move: uuid.UUID, side: MoveSide) -> None:
        """The control plane drives this side."""
        await run(connection, "transfer_touch", _of(tenant, move, side))

    async def go(
        self,
        connection: Connection,
        tenant: uuid.UUID,
        move: uuid.UUID,
        side: MoveSide,
        *,
        froms: Sequence[str],
        to: str,
        peer_url: str | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> bool:
        """Take a side to another state, if it is in one of these."""
        values = {
            **_of(tenant, move, side),
            "froms": list(froms),
            "to": to,
            "peer_url": peer_url or None,
            "facts": msgspec.json.encode(facts or {}).decode(),
        }
        return await fetch_one(connection, "transfer_state", values) is not None

    # --- single statements -------------------------------------------------------------------
    async def row(self, connection: Connection, name: str, **values: object) -> Row | None:
        """The first row of a statement."""
        return await fetch_one(connection, name, values)

    async def do(self, connection: Connection, name: str, **values: object) -> None:
        """A statement that gives nothing back."""
        await run(connection, name, values)

    async def one(self, connection: Connection, name: str, **values: object) -> Any:
        """The only value of a statement that always has a row."""
        return (await fetch_row(connection, name, values))[0]

    async def rows(self, connection: Connection, name: str, **values: object) -> list[Row]:
        """All rows of a statement."""
        return await fetch_all(connection, name, values)

    async def unlink(self, connection: Connection, link: str) -> None:
        """Drop slot, publication and role, whoever still reads from them."""
        await self.rows(connection, "link_slot_readers", link=link)
        await self.rows(connection, "link_slot_drop", link=link)
        await self.rows(connection, "link_role_readers", link=link)
        await self.rows(connection, "link_unpublish", link=link)
        try:
            await self.rows(connection, "link_sync_slots_drop")
        except psycopg.errors.ObjectInUse:
            return  # its reader is just going; what remains is dropped with the next move

    async def slot_is_gone(self, connection: Connection, link: str) -> bool:
        """Whether nothing keeps log for the link any more."""
        return await self.row(connection, "link_slot_state", link=link) is None


def _of(tenant: uuid.UUID, move: uuid.UUID, side: MoveSide) -> dict[str, object]:
    return {"tenant": tenant, "move": move, "side": side.name}
