"""Moves that nobody drives on, and ends of calls that come after their tenant left."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from cells.clock import SystemClock
from cells.contract import MoveSide, MoveVerb
from cells.domain.run import RunState
from cells.observability.metrics import Metrics
from cells.ports import Completion, Retryable
from cells.returns import Away, AwayPage, Outcome
from cells.store.transfer import TransferStore
from cells.transfer.keeper import TransferKeeper
from cells.transfer.onward import Onward
from cells.transfer.peers import Settled
from cells.transfer.reports import Reports
from tests.component.cells.store.world import new_job, seconds_ago
from tests.component.cells.transfer.pair import Pair, Side
from tests.waiting import eventually


class Told:
    """Says where the tenant lives, as the control plane would."""

    def __init__(self, cell: str, epoch: int) -> None:
        self.settled = Settled(cell=cell, epoch=epoch, url="http://127.0.0.1:1")
        self.asked: list[MoveSide] = []

    async def ask(self, *, tenant: uuid.UUID, move: uuid.UUID, side: MoveSide) -> Settled:
        self.asked.append(side)
        return self.settled


@asynccontextmanager
async def kept(side: Side, told: Told, *, alone_ms: int = 300) -> AsyncIterator[None]:
    """The keeper of a cell, at work."""
    keeper = TransferKeeper(
        TransferStore(side.url, cell_name=side.name), side.service, told, Metrics(), alone_ms=alone_ms
    )
    stop = asyncio.Event()
    running = asyncio.create_task(keeper.run(stop))
    try:
        yield
    finally:
        stop.set()
        await running


async def state_of(side: Side, pair: Pair) -> tuple[str, int]:
    known = await side.store.get_tenant(pair.tenant.tenant_id)
    assert known is not None
    return known.state, known.ownership_epoch


async def test_a_barrier_lifts_at_its_deadline(pair: Pair) -> None:
    await pair.copied()
    await pair.at_source(MoveVerb.BARRIER, barrier_ms=200)
    assert (await state_of(pair.source, pair))[0] == "BARRIER"
    told = Told(pair.source.name, 1)
    async with kept(pair.source, told, alone_ms=60_000):

        async def lifted() -> bool:
            return (await state_of(pair.source, pair))[0] == "ACTIVE"

        await eventually(lifted)
    assert told.asked == []
    await pair.sealed()  # and another one can be raised


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_sealed_move_left_alone_is_settled_by_its_cells(pair: Pair, goes_on: bool) -> None:
    here, there = pair.source, pair.destination
    await pair.copied()
    lsn = await pair.sealed()
    await pair.at_destination(MoveVerb.TAIL, lsn=lsn)
    told = Told(there.name if goes_on else here.name, pair.new_epoch)
    async with kept(here, told), kept(there, told):

        async def settled() -> bool:
            source, destination = await state_of(here, pair), await state_of(there, pair)
            if goes_on:
                return (source, destination) == (("MOVED", pair.new_epoch), ("ACTIVE", pair.new_epoch))
            return (source, destination[0]) == (("ACTIVE", pair.new_epoch), "MOVED")

        await eventually(settled, timeout=20)
        # Each side asks for itself; the one that stays as it is may be the last.
        await eventually(lambda: set(told.asked) == {MoveSide.SOURCE, MoveSide.DESTINATION}, timeout=20)


class Other:
    """The cell a tenant moved to, at first away."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.away = True

    async def hand_on(self, url: str, move: uuid.UUID, completions: Sequence[Completion]) -> list[bool]:
        assert url == "http://127.0.0.1:1"
        if self.away:
            raise Retryable("away")
        return list(await self.side.service.take_over(move, "cell-1", completions))

    async def hand_report(self, away: Away, page: AwayPage) -> None:
        sent = msgspec.json.decode(msgspec.json.encode(page), type=AwayPage)
        await self.side.service.take_report(away.move_id, "cell-1", sent)


async def test_ends_of_calls_follow_their_tenant(pair: Pair) -> None:
    here, there = pair.source.world, pair.destination.world
    claim = await here.claimed(new_job(seconds_ago(5)))
    other = Other(pair.destination)
    onward = Onward(
        here.store,
        TransferStore(pair.source.url, cell_name="cell-1"),
        pair.source.service._queue,
        other,
        SystemClock(),
        Metrics(),
        host_id=lambda: here.host_id,
    )
    here.store.completions_refused = onward.take
    stop = asyncio.Event()
    running = asyncio.create_task(onward.run(stop))
    await pair.copied()
    lsn = await pair.sealed()
    assert not await here.complete(claim, RunState.SUCCEEDED)
    assert len(onward._waiting) == 1
    await pair.at_destination(MoveVerb.TAIL, lsn=lsn)
    await pair.at_destination(MoveVerb.ACTIVATE, new_epoch=pair.new_epoch)
    await pair.at_source(MoveVerb.DEPART, new_epoch=pair.new_epoch, peer_url="http://127.0.0.1:1")
    other.away = False

    async def ended() -> bool:
        return (await there.run(claim)).state is RunState.SUCCEEDED

    await eventually(ended)
    await eventually(lambda: not onward._waiting)
    stop.set()
    await running

    await pair.at_destination(MoveVerb.RELEASE)
    # So do reports of a region that comes back to the cell it has left.
    tenant = pair.tenant.tenant_id
    await here.sql.execute(
        "INSERT INTO reconciliation (tenant_id, region, epoch, host_id, seq, position, at, kind, verb, thing,"
        " detail, outcome) VALUES (%s, 'a', 1, 1, 1, 1, now(), 'INTENT', 'job.create', 'job:1',"
        ' \'{"jobs": [1], "run": {"due_at": null, "state": "DUE"}}\', \'NOT_APPLIED\')',
        [tenant],
    )
    await here.sql.execute(
        "INSERT INTO returned_tenants (tenant_id, region, epoch) VALUES (%s, 'a', 2)", [tenant]
    )
    reports = Reports(here.store, other, host_id=lambda: here.host_id)
    assert (await reports.step(), await reports.step()) == (1, 0)
    (entry,) = await there.store.reconciliation(tenant, after=None, limit=10)
    assert (entry.verb, entry.outcome, entry.detail) == (
        "job.create", Outcome.NOT_APPLIED, b'{"run": {"state": "DUE"}}',
    )  # fmt: skip
    assert await there.store.tell_returned(host_id=there.host_id) == 1


async def test_ends_of_calls_are_written_here_where_the_tenant_stays(pair: Pair) -> None:
    here = pair.source.world
    claim = await here.claimed(new_job(seconds_ago(5)))
    superseded = await here.claimed(new_job(seconds_ago(5)))
    onward = Onward(
        here.store,
        TransferStore(pair.source.url, cell_name="cell-1"),
        pair.source.service._queue,
        Other(pair.destination),
        SystemClock(),
        Metrics(),
        host_id=lambda: here.host_id,
    )
    here.store.completions_refused = onward.take
    stop = asyncio.Event()
    running = asyncio.create_task(onward.run(stop))
    await pair.copied()
    await pair.sealed()
    assert not await here.complete(claim, RunState.SUCCEEDED)
    await pair.at_source(MoveVerb.ABORT)

    async def ended() -> bool:
        return (await here.run(claim)).state is RunState.SUCCEEDED

    await eventually(ended)
    assert await here.complete(superseded, RunState.SUCCEEDED)
    assert not await here.complete(superseded, RunState.SUCCEEDED)  # nothing is tried for ever
    await eventually(lambda: not onward._waiting)
    stop.set()
    await running
