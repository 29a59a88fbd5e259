"""What the verbs of both sides share: names, passwords, the row of a move, refusals."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

from cells.contract import MoveOrder, MoveSide
from cells.domain import ids
from cells.ports import Conflict
from cells.store.database import Connection
from cells.store.transfer import TransferRow, TransferStore

#: How often something that is about to happen is looked at (seconds).
LOOK_SECONDS = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One verb under way: what it is about, and a session of this cell's database."""

    store: TransferStore
    connection: Connection
    side: MoveSide
    tenant: uuid.UUID
    move: uuid.UUID
    order: MoveOrder

    async def row(self) -> TransferRow | None:
        """This side of the move, if it has begun."""
        return await self.store.get(self.connection, self.tenant, self.move, self.side)

    async def current(self) -> TransferRow:
        """This side of the move in this very attempt; `Conflict` if there is none such, or if the cell
        was taken over since it began."""
        row = await self.row()
        if row is None or row.attempt != self.order.attempt:
            raise Conflict(f"this cell is not at attempt {self.order.attempt} of the move")
        if row.taken_over:
            raise Conflict("this cell was taken over since the attempt began", epoch=row.cell_epoch)
        await self.store.touch(self.connection, self.tenant, self.move, self.side)
        return row

    async def go(self, froms: tuple[str, ...], to: str, **more: object) -> None:
        """This side goes on; `Conflict` if it is not where it can."""
        peer_url, facts = more.get("peer_url"), more.get("facts")
        moved = await self.store.go(
            self.connection,
            self.tenant,
            self.move,
            self.side,
            froms=froms,
            to=to,
            peer_url=peer_url if isinstance(peer_url, str) else None,
            facts=facts if isinstance(facts, dict) else None,
        )
        if not moved:
            raise Conflict(f"the {self.side} cannot go on to {to}: it is not at {' or '.join(froms)}")


def tenant_of(order: MoveOrder) -> uuid.UUID:
    """The tenant an order is about; `Conflict` where it names none."""
    tenant = ids.decode(ids.TENANT, order.tenant_id)
    if tenant is None:
        raise Conflict("the order names no tenant")
    return tenant


def password(installation_key: bytes, link: str) -> str:
    """The password of a link's role. Both cells know it, and it never travels."""
    return hmac.new(installation_key, b"clockhouse move " + link.encode(), hashlib.sha256).hexdigest()


async def looks(patience_ms: int) -> AsyncIterator[None]:
    """Look now and again, until the patience is over."""
    until = time.monotonic() + patience_ms / 1000
    while True:
        yield
        if time.monotonic() >= until:
            return
        await asyncio.sleep(LOOK_SECONDS)
