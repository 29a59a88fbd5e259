"""The ownership store on PostgreSQL, in a database of its own.

Plain psycopg, one short autocommitted statement per call: a claim raises the counter and
writes the row in the same statement, so its counter row lock puts all claims in one order.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from controlplane.ownership.store import (
    CellOwnership,
    OwnershipUnavailable,
    PromotionRecord,
    Superseded,
    TenantOwnership,
)
from controlplane.sql import named_sql

_HERE = Path(__file__).parent
_SQL = named_sql(_HERE / "sql" / "ownership.sql")
_MIGRATE = named_sql(_HERE / "sql" / "migrate.sql")


def _query(text: str) -> LiteralString:
    return cast(LiteralString, text)  # from our own files


class PostgresOwnershipStore:
    """See `OwnershipStore`. Thread-safe; connects when first used."""

    def __init__(self, url: str, *, pool_size: int = 4, timeout_seconds: float = 3.0):
        self._pool: ConnectionPool[psycopg.Connection[tuple[Any, ...]]] = ConnectionPool(
            url,
            min_size=0,
            max_size=pool_size,
            timeout=timeout_seconds,
            max_idle=60,
            open=False,
            check=ConnectionPool.check_connection,
            kwargs={
                "autocommit": True,
                "connect_timeout": 3,
                "options": "-c statement_timeout=5000 -c lock_timeout=3000",
            },
        )
        self._opening = threading.Lock()
        self._opened = False

    def close(self) -> None:
        self._pool.close()

    def _row(self, name: str, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        rows = self._rows(name, values)
        return rows[0] if rows else None

    def _rows(self, name: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        cursor = self._execute(name, values)
        return cursor.fetchall()

    def _execute(self, name: str, values: Mapping[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        with self._opening:
            if not self._opened:
                self._pool.open()
                self._opened = True
        try:
            with self._pool.connection() as connection:
                return connection.execute(_query(_SQL[name]), values)
        except (psycopg.OperationalError, PoolTimeout) as e:
            raise OwnershipUnavailable(str(e)) from e

    def cell(self, name: str) -> CellOwnership | None:
        row = self._row("cell", {"cell": name})
        return None if row is None else _cell(row)

    def claim_cell(
        self, name: str, *, region: str, expected: int | None, renewals: int | None = None
    ) -> CellOwnership:
        statement = "first_cell" if expected is None else "claim_cell"
        row = self._row(
            statement, {"cell": name, "region": region, "expected": expected, "renewals": renewals}
        )
        if row is None:
            raise Superseded(self.cell(name))
        return _cell(row)

    def renew_cell(self, name: str, *, region: str, epoch: int) -> CellOwnership:
        row = self._row("renew_cell", {"cell": name, "region": region, "epoch": epoch})
        if row is None:
            raise Superseded(self.cell(name))
        return _cell(row)

    def promotions(self, cell: str) -> Sequence[PromotionRecord]:
        return [
            PromotionRecord(
                cell=cell, timeline=timeline, epoch=epoch, region=region, parent=parent, fork=int(fork)
            )
            for timeline, epoch, region, parent, fork in self._rows("promotions", {"cell": cell})
        ]

    def record_promotion(self, record: PromotionRecord) -> None:
        if self._row("promotion_first", asdict(record)) is None:
            raise Superseded(None)

    def cast_vote(self, cell: str, *, epoch: int, region: str, place: str) -> None:
        self._execute("vote_cast", {"cell": cell, "epoch": epoch, "region": region, "place": place})

    def votes(self, cell: str, *, epoch: int, regions: Sequence[str]) -> Mapping[str, str]:
        rows = self._rows("votes", {"cell": cell, "epoch": epoch})
        return {region: place for region, place in rows if region in regions}

    def tenant(self, tenant_id: uuid.UUID) -> TenantOwnership | None:
        row = self._row("tenant", {"tenant_id": tenant_id})
        return None if row is None else _tenant(row)

    def claim_tenant(self, tenant_id: uuid.UUID, *, cell: str, expected: int | None) -> TenantOwnership:
        statement = "first_tenant" if expected is None else "claim_tenant"
        row = self._row(statement, {"tenant_id": tenant_id, "cell": cell, "expected": expected})
        if row is None:
            raise Superseded(self.tenant(tenant_id))
        return _tenant(row)

    def tenants_of(self, cell: str, *, after: uuid.UUID | None, limit: int) -> Sequence[TenantOwnership]:
        rows = self._rows("tenants_of", {"cell": cell, "after": after, "limit": limit})
        return [_tenant(row) for row in rows]

    def release_tenant(self, tenant_id: uuid.UUID, *, expected: int) -> None:
        if self._row("release_tenant", {"tenant_id": tenant_id, "expected": expected}) is None:
            raise Superseded(self.tenant(tenant_id))


def _cell(row: tuple[Any, ...]) -> CellOwnership:
    cell, region, epoch, renewals, promotions = row
    return CellOwnership(cell=cell, region=region, epoch=epoch, renewals=renewals, promotions=promotions)


def _tenant(row: tuple[Any, ...]) -> TenantOwnership:
    tenant_id, cell, epoch = row
    return TenantOwnership(tenant_id=tenant_id, cell=cell, epoch=epoch)


def migrate(url: str) -> int:
    """Applies the migrations that are missing; says how many. Safe to run twice at once."""
    applied = 0
    with closing(psycopg.connect(url)) as connection, connection.transaction():
        connection.execute(_query(_MIGRATE["lock"]))
        connection.execute(_query(_MIGRATE["versions"]))
        row = connection.execute(_query(_MIGRATE["newest"])).fetchone()
        newest = row[0] if row else 0
        for file in sorted((_HERE / "migrations").glob("[0-9]*.sql")):
            version = int(file.stem.split("_")[0])
            if version > newest:
                connection.execute(_query(file.read_text()))
                connection.execute(_query(_MIGRATE["applied"]), {"version": version})
                applied += 1
    return applied
