"""Sees to it that no move leaves a tenant stuck, whoever drove it.

A barrier lifts at its deadline. A sealed source and a destination that is ready are settled by whoever of
them notices that nobody has asked for anything for a while: the control plane's ownership row says where the
tenant lives. If it still names the source, the source claims it anew (so that a driver who wakes up loses)
and works on; if it names the destination, both go on.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Protocol

from cells.contract import MoveOrder, MoveSide, MoveVerb
from cells.domain import ids
from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Conflict, Retryable, Terminal
from cells.store.transfer import TransferRow, TransferStore
from cells.transfer.peers import Settled
from cells.transfer.service import TransferService

log = logger(__name__)

INTERVAL_SECONDS = 0.25
#: Nobody has driven a sealed move on for this long: a cell settles it by itself (milliseconds).
ALONE_MS = 10_000


class Asks(Protocol):
    """Whoever knows where tenants live (`peers.Settler`)."""

    async def ask(self, *, tenant: uuid.UUID, move: uuid.UUID, side: MoveSide) -> Settled: ...


class TransferKeeper:
    """Belongs to the role `reaper`. Any number may run it: each act is conditional."""

    def __init__(
        self,
        transfers: TransferStore,
        service: TransferService,
        settler: Asks,
        metrics: Metrics,
        *,
        alone_ms: int = ALONE_MS,
    ) -> None:
        self._transfers = transfers
        self._service = service
        self._settler = settler
        self._alone_ms = alone_ms
        self._lifted = metrics.counter("moves_barriers_lifted_total", "Barriers that ended by their deadline")
        self._settled = metrics.counter("moves_settled_total", "Moves that a cell settled by itself", ["how"])

    async def run(self, stop: asyncio.Event) -> None:
        """Look four times a second until `stop`."""
        while not stop.is_set():
            try:
                async with self._transfers.session(timeout_ms=5_000) as connection:
                    while not stop.is_set():
                        lifted = await self._transfers.rows(connection, "transfer_lift_overdue")
                        self._lifted.inc(len(lifted))
                        for tenant, move, side in await self._transfers.rows(
                            connection, "transfer_left_alone", ms=self._alone_ms
                        ):
                            row = await self._transfers.get(connection, tenant, move, MoveSide[side])
                            if row is not None:
                                await self._settle(tenant, move, MoveSide[side], row)
                        await _stopped_within(stop, INTERVAL_SECONDS)
            except (Retryable, Terminal) as fault:
                log.warning("moves not looked at", fault=str(fault)[:200])
                await _stopped_within(stop, 1.0)

    async def _settle(self, tenant: uuid.UUID, move: uuid.UUID, side: MoveSide, row: TransferRow) -> None:
        try:
            found = await self._settler.ask(tenant=tenant, move=move, side=side)
        except Retryable as fault:
            log.warning(
                "a move is left alone, and nobody says where the tenant lives", fault=str(fault)[:200]
            )
            await _pause()
            return
        verb, epoch = _verb(side, found, self._transfers.cell_name)
        if verb is None:
            await _pause()
            return
        order = MoveOrder(
            tenant_id=ids.encode(ids.TENANT, tenant),
            attempt=row.attempt,
            epoch=row.tenant_epoch,
            peer=row.peer,
            link=row.link,
            peer_url=found.url or row.peer_url,
            new_epoch=epoch,
        )
        try:
            await self._service.act(move, side, verb, order)
        except Conflict as fault:
            log.warning("a move was not settled", side=side.value, fault=str(fault)[:200])
            return
        self._settled.labels(verb.value).inc()
        log.warning("a move was settled by its cell", move=str(move), side=side.value, verb=verb.value)


def _verb(side: MoveSide, found: Settled, cell: str) -> tuple[MoveVerb | None, int]:
    """What a side has to do, now that it is known where the tenant lives."""
    here = found.cell == cell
    if side is MoveSide.SOURCE:
        return (MoveVerb.ABORT if here else MoveVerb.DEPART), found.epoch
    return (MoveVerb.ACTIVATE if here else None), found.epoch


async def _pause() -> None:
    await asyncio.sleep(1.0)


async def _stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True
