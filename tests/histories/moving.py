"""Drives a tenant to another cell, as the control plane does: verbs of both cells, and the row in between."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from cells.contract import MoveOrder, MoveSide, MoveVerb
from cells.domain import ids
from cells.ports import Completion, Conflict, Retryable, TenantConfig
from controlplane.ownership import OwnershipStore, Superseded, TenantOwnership
from tests.histories.cell import PASSING, Process

#: An attempt that does not get on for so long is given up (seconds).
_PATIENCE = 8.0


class Move:
    """One tenant's way from one cell to another. `processes`: whoever may act for each cell."""

    def __init__(
        self,
        tenant: uuid.UUID,
        source: str,
        destination: str,
        store: OwnershipStore,
        processes: Mapping[str, list[Process]],
    ) -> None:
        self.tenant, self.source, self.destination = tenant, source, destination
        self._store = store
        self._processes = processes
        self._move = uuid.uuid4()
        self._attempt = 0
        self._epoch = 0
        self.outcome = self.why = ""
        for process in processes[source]:
            process.hand_on = self._hand_on

    async def drive(self, until: float) -> None:
        """Until the tenant has moved, or after that time (monotonic) lives on where it was."""
        while True:
            try:
                owned = await self._owned()
                if owned.cell == self.destination:
                    await self._finish(owned)
                    self.outcome = "moved"
                    return
                if time.monotonic() > until:
                    await self._undo(owned)
                    self.outcome = "stayed"
                    return
                await self._try(owned)
            except (*PASSING, Superseded) as fault:
                self.why = f"{type(fault).__name__}: {fault}"[:200]
                await asyncio.sleep(0.2)

    async def _owned(self) -> TenantOwnership:
        owned = await asyncio.to_thread(self._store.tenant, self.tenant)
        if owned is None:
            raise AssertionError("the tenant has no row")
        return owned

    async def _cell_epoch(self, cell: str) -> int:
        row = await asyncio.to_thread(self._store.cell, cell)
        return 0 if row is None else row.epoch

    async def _ask(self, side: MoveSide, verb: MoveVerb, **more: Any) -> dict[str, Any]:
        mine = self.source if side is MoveSide.SOURCE else self.destination
        order = MoveOrder(
            tenant_id=ids.encode(ids.TENANT, self.tenant),
            attempt=self._attempt,
            epoch=self._epoch,
            peer=self.destination if side is MoveSide.SOURCE else self.source,
            link=f"ch_move_{self._move.hex}_{self._attempt}",
            **{
                "patience_ms": 3000,
                "barrier_ms": 4000,
                "config": msgspec.to_builtins(TenantConfig()),
                "config_version": 7,
                **more,
            },
        )
        for process in self._processes[mine]:
            if process.service is not None:
                return dict(await process.service.act(self._move, side, verb, order))
        raise Retryable(f"nobody acts for {mine}")

    async def _try(self, owned: TenantOwnership) -> None:
        source, there = MoveSide.SOURCE, MoveSide.DESTINATION
        self._epoch = max(owned.epoch, await self._cell_epoch(self.source))
        self._attempt += 1
        if self._attempt > 1:
            await self._ask(source, MoveVerb.ABORT, new_epoch=self._epoch)
        told = await self._ask(source, MoveVerb.PUBLISH)
        await self._ask(
            there,
            MoveVerb.PREPARE,
            conninfo=told["conninfo"],
            schema=told["schema"],
            days=tuple(told["days"]),
        )
        await self._ask(there, MoveVerb.SUBSCRIBE)
        deadline = time.monotonic() + _PATIENCE
        while True:
            copied = await self._ask(there, MoveVerb.PROGRESS)
            if copied["tables"] and copied["tables_ready"] == copied["tables"]:
                break
            if not copied["following"] or time.monotonic() > deadline:
                raise Retryable("it is not copied")
            await asyncio.sleep(0.05)
        await self._ask(there, MoveVerb.VERIFY)
        await self._ask(source, MoveVerb.BARRIER)
        sealed = await self._ask(source, MoveVerb.SEAL)
        await self._ask(there, MoveVerb.TAIL, lsn=sealed["lsn"])
        if (await self._owned()).epoch != owned.epoch:
            raise Conflict("the source was taken over")
        await asyncio.to_thread(
            self._store.claim_tenant, self.tenant, cell=self.destination, expected=owned.epoch
        )

    async def _finish(self, owned: TenantOwnership) -> None:
        """Forward only."""
        told = await self._ask(MoveSide.DESTINATION, MoveVerb.PROGRESS)
        new_epoch = max(owned.epoch, await self._cell_epoch(self.destination))
        if told.get("tenant_state") == "ACTIVE":  # perhaps under a later one: the destination was taken over
            new_epoch = int(told["ownership_epoch"])
        else:
            await self._ask(MoveSide.DESTINATION, MoveVerb.ACTIVATE, new_epoch=new_epoch)
        await self._ask(MoveSide.SOURCE, MoveVerb.DEPART, new_epoch=new_epoch, peer_url="http://127.0.0.1:1")
        await self._ask(MoveSide.DESTINATION, MoveVerb.RELEASE)

    async def _undo(self, owned: TenantOwnership) -> None:
        if self._attempt:
            epoch = max(owned.epoch, await self._cell_epoch(self.source))
            await self._ask(MoveSide.SOURCE, MoveVerb.ABORT, new_epoch=epoch)
            await self._ask(MoveSide.DESTINATION, MoveVerb.ABORT)

    async def _hand_on(self, completions: Any) -> None:
        mine: list[Completion] = [one for one in completions if one.tenant_id == self.tenant]
        for process in self._processes[self.destination]:
            if mine and process.service is not None:
                await process.service.take_over(self._move, self.source, mine)
                return
