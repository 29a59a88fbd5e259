"""What tests of moves do over and over: give the verbs of a whole move in order."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cells.contract import MoveOrder, MoveSide, MoveVerb
from cells.domain import ids
from cells.ports import Fence, TenantConfig
from cells.store.postgres import PostgresStore
from cells.transfer.service import TransferService
from tests.component.cells.store.world import EPOCH, World
from tests.waiting import eventually

NEW_EPOCH = EPOCH + 40


@dataclass(kw_only=True)
class Side:
    """One cell."""

    name: str
    url: str
    store: PostgresStore
    world: World
    service: TransferService


@dataclass(kw_only=True)
class Pair:
    """A source with tenant `source.world.a`, and a destination that does not know it."""

    source: Side
    destination: Side
    move: uuid.UUID = field(default_factory=uuid.uuid4)
    attempt: int = 1
    published: dict[str, Any] = field(default_factory=dict)
    tenant_fence: Fence | None = None  # None: the source's first tenant

    @property
    def tenant(self) -> Fence:
        return self.tenant_fence or self.source.world.a

    @property
    def new_epoch(self) -> int:
        return self.tenant.epoch + 40

    @property
    def moved(self) -> Fence:
        """The tenant in its new cell."""
        return Fence(tenant_id=self.tenant.tenant_id, epoch=self.new_epoch)

    def order(self, side: MoveSide, **more: Any) -> MoveOrder:
        peer = self.destination if side is MoveSide.SOURCE else self.source
        return MoveOrder(
            tenant_id=ids.encode(ids.TENANT, self.tenant.tenant_id),
            attempt=self.attempt,
            epoch=self.tenant.epoch,
            peer=peer.name,
            link=f"ch_move_{self.move.hex}_{self.attempt}",
            **{
                "patience_ms": 5_000,
                "barrier_ms": 20_000,
                "config": msgspec.to_builtins(TenantConfig()),
                "config_version": 7,
                **more,
            },
        )

    async def ask(self, side: MoveSide, verb: MoveVerb, **more: Any) -> dict[str, Any]:
        one = self.source if side is MoveSide.SOURCE else self.destination
        return dict(await one.service.act(self.move, side, verb, self.order(side, **more)))

    async def at_source(self, verb: MoveVerb, **more: Any) -> dict[str, Any]:
        return await self.ask(MoveSide.SOURCE, verb, **more)

    async def at_destination(self, verb: MoveVerb, **more: Any) -> dict[str, Any]:
        return await self.ask(MoveSide.DESTINATION, verb, **more)

    async def copied(self) -> None:
        """PREPARE and COPY."""
        self.published = await self.at_source(MoveVerb.PUBLISH)
        await self.at_destination(
            MoveVerb.PREPARE,
            conninfo=self.published["conninfo"],
            schema=self.published["schema"],
            days=tuple(self.published["days"]),
        )
        await self.at_destination(MoveVerb.SUBSCRIBE)

        async def ready() -> bool:
            told = await self.at_destination(MoveVerb.PROGRESS)
            assert told["following"], told
            return bool(told["tables"]) and told["tables_ready"] == told["tables"]

        await eventually(ready, timeout=60)

    async def sealed(self) -> str:
        """CATCH_UP, BARRIER and SEAL; the sealed place."""
        await self.at_destination(MoveVerb.VERIFY)
        await self.at_source(MoveVerb.BARRIER)
        return str((await self.at_source(MoveVerb.SEAL))["lsn"])

    async def handed_off(self) -> None:
        """All up to the tenant's life in its new cell."""
        lsn = await self.sealed()
        await self.at_destination(MoveVerb.TAIL, lsn=lsn)
        await self.at_destination(MoveVerb.ACTIVATE, new_epoch=self.new_epoch)
        await self.at_source(MoveVerb.DEPART, new_epoch=self.new_epoch, peer_url="http://127.0.0.1:1")

    async def rows(self, side: Side, table: str) -> list[str]:
        """A tenant's rows of a table as text."""
        return [
            text
            for (text,) in await side.world.rows(
                f"SELECT t::text FROM {table} t WHERE tenant_id = %s ORDER BY 1",  # noqa: S608
                self.tenant.tenant_id,
            )
        ]
