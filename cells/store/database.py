"""Connections: their settings, transactions, and what their errors mean.

Every statement of the store is a keyed lookup that drives index probes. Connections say so to
the planner, and keep generic plans: a fresh partition without statistics must not turn a claim
into sequential scans.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, AsyncCursor, errors
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from cells.ports import LeaseLost, Retryable, Terminal
from cells.store import arrays
from cells.store.queries import QUERIES

Row = tuple[Any, ...]
Connection = AsyncConnection[Row]

#: How long connecting may take at the start of a process (seconds).
OPEN_SECONDS = 10.0

_SETTINGS = {
    "timezone": "UTC",
    "statement_timeout": "20s",
    "transaction_timeout": "30s",
    "idle_in_transaction_session_timeout": "10s",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}

_PASSING = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.ReadOnlySqlTransaction,
    errors.TransactionTimeout,
    errors.IdleInTransactionSessionTimeout,
)


class Purpose(enum.Enum):
    """What a connection is wanted for."""

    COMMON = enum.auto()  # requests, DEFAULT and LOW work, upkeep
    URGENT = enum.auto()  # claims of CRITICAL and HIGH work
    LEASE = enum.auto()  # a process's own lease: it touches nothing that others lock


#: Of a pool of that size, so many connections are kept for these uses.
_KEPT_FROM, _KEPT = 6, {Purpose.URGENT: 2, Purpose.LEASE: 1}


class Database:
    """The connections to one cell's PostgreSQL. Of more than a few some are kept: a flood of requests or of
    LOW work, which holds all others, must not keep a CRITICAL run waiting, and claims that wait for a lock
    must not keep a lease waiting."""

    def __init__(self, url: str, *, pool_size: int, application_name: str) -> None:
        kept = _KEPT if pool_size >= _KEPT_FROM else {}
        self._sizes = {Purpose.COMMON: pool_size - sum(kept.values()), **kept}
        self._url, self._application_name = url, application_name
        self._pools = self._made()

    async def open(self) -> Self:
        """Connect. `Retryable` if the engine does not answer; it may be called again then."""
        if all(pool.closed for pool in self._pools.values()):
            self._pools = self._made()  # one that was closed, or not opened in time, cannot be opened again
        with MappedErrors():
            try:
                for pool in self._pools.values():
                    if pool.closed:
                        await pool.open(wait=True, timeout=OPEN_SECONDS)
            except BaseException:
                await self.close()
                raise
        return self

    async def close(self) -> None:
        """Close every connection."""
        for pool in self._pools.values():
            await pool.close()

    @asynccontextmanager
    async def transaction(self, use: Purpose = Purpose.COMMON) -> AsyncIterator[Connection]:
        """A connection; its transaction is committed on a clean exit, else rolled back."""
        with MappedErrors():
            async with self._pools.get(use, self._pools[Purpose.COMMON]).connection() as connection:
                yield connection

    def _made(self) -> dict[Purpose, AsyncConnectionPool[Connection]]:
        return {
            use: _pool(self._url, size, self._application_name, least=min(2, size))
            for use, size in self._sizes.items()
        }


def _pool(url: str, size: int, application_name: str, *, least: int) -> AsyncConnectionPool[Connection]:
    options = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    return AsyncConnectionPool(
        url,
        min_size=least,
        max_size=size,
        open=False,
        timeout=5.0,
        kwargs={
            "options": options,
            "application_name": application_name,
            "prepare_threshold": 0,
            "connect_timeout": 5,
        },
        configure=_configure,
    )


async def _configure(connection: Connection) -> None:
    arrays.register(connection.adapters)
    connection.prepared_max = 500


class MappedErrors:
    """Turns what PostgreSQL says into the engine's own errors; knows nothing of constraints
    that mean something, those are caught where they are expected."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, errors.NotNullViolation) and error.diag.column_name == "epoch":
            raise LeaseLost("the lease of this host or cell has ended") from error
        if isinstance(error, errors.CheckViolation) and error.diag.constraint_name is None:
            # A partition came into being while the row was on its way to the default one.
            raise Retryable(str(error)) from error
        if isinstance(error, (*_PASSING, PoolTimeout, PoolClosed, TooManyRequests)):
            raise Retryable(str(error)) from error
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            raise Retryable(str(error)) from error
        if isinstance(error, asyncio.TimeoutError | OSError):
            raise Retryable(str(error)) from error


async def run(
    connection: Connection, name: str, parameters: Mapping[str, object] | None = None
) -> AsyncCursor[Row]:
    """Execute a named statement, prepared, with binary results."""
    return await connection.execute(QUERIES[name], parameters, prepare=True, binary=True)


async def fetch_all(
    connection: Connection, name: str, parameters: Mapping[str, object] | None = None
) -> list[Row]:
    """All rows of a named statement."""
    return await (await run(connection, name, parameters)).fetchall()


async def fetch_row(connection: Connection, name: str, parameters: Mapping[str, object] | None = None) -> Row:
    """The row of a named statement that always has one."""
    row = await fetch_one(connection, name, parameters)
    if row is None:
        raise Terminal(f"{name} found nothing")
    return row


async def fetch_one(
    connection: Connection, name: str, parameters: Mapping[str, object] | None = None
) -> Row | None:
    """The first row of a named statement."""
    return await (await run(connection, name, parameters)).fetchone()
