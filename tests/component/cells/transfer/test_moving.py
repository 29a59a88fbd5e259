"""A tenant moves, verb by verb, between two databases."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from cells.contract import MoveVerb
from cells.domain.run import RunState
from cells.ownership.cell_row import CellRow
from cells.ports import Conflict, Fence, NotOwner
from cells.transfer.tables import COPIED
from tests.component.cells.store.world import completion, member_of, new_job, now, seconds_ago
from tests.component.cells.transfer.pair import NEW_EPOCH, Pair
from tests.waiting import eventually


async def test_everything_moves_and_nothing_else(pair: Pair) -> None:
    here, there = pair.source.world, pair.destination.world
    running = await here.claimed(new_job(seconds_ago(5)))
    await here.claimed(new_job(seconds_ago(5)), fence=here.b)
    soon = now().replace(microsecond=0)
    waiting = [new_job(soon + timedelta(seconds=1 + n)) for n in range(20)]
    await here.create(*waiting)
    await pair.copied()
    late = await here.claimed(new_job(seconds_ago(3)))  # follows
    assert await here.complete(late, RunState.SUCCEEDED)
    lsn = await pair.sealed()
    (refused,) = await here.store.create_jobs([here.a], [new_job(now())], host_id=here.host_id)
    assert isinstance(refused, NotOwner)
    assert not await here.complete(running, RunState.SUCCEEDED)
    tail = await pair.at_destination(MoveVerb.TAIL, lsn=lsn)
    assert tail["changed"] > 0
    for table in COPIED:
        assert await pair.rows(pair.source, table) == await pair.rows(pair.destination, table), table
    await pair.at_destination(MoveVerb.ACTIVATE, new_epoch=NEW_EPOCH)
    await pair.at_source(MoveVerb.DEPART, new_epoch=NEW_EPOCH, peer_url="http://127.0.0.1:1")
    # The neighbour has stayed, and the destination has nothing of it.
    assert await there.value("SELECT count(*) FROM jobs WHERE tenant_id = %s", here.b.tenant_id) == 0
    # What was under way has no host here, ends here under its old epoch, and is claimed by nobody else.
    held = (
        "SELECT count(*) FROM runs"
        " WHERE lease_expires_at IS NOT NULL AND host_id IS NOT NULL AND tenant_id = %s"
    )
    assert await there.value(held, pair.tenant.tenant_id) == 0
    taken = await pair.destination.service.take_over(
        pair.move, "cell-1", [completion(running, RunState.SUCCEEDED)]
    )
    assert list(taken) == [True]
    # Work goes on under the new epoch, and only here.
    job = waiting[0]
    claim = None

    async def claimed() -> bool:
        nonlocal claim
        won = await there.claim(member_of(job, pair.tenant.tenant_id))
        claim = won.claims[0] if won.claims else None
        return claim is not None

    await eventually(claimed, timeout=10)
    assert claim is not None
    assert claim.epoch == NEW_EPOCH << 20
    assert (await here.claim(member_of(waiting[1], pair.tenant.tenant_id))).claims == ()
    await there.create(new_job(now()), fence=pair.moved)
    (refused,) = await here.store.create_jobs([pair.moved], [new_job(now())], host_id=here.host_id)
    assert isinstance(refused, NotOwner)
    # The end: nothing is left behind.
    await pair.at_destination(MoveVerb.LOAD)
    await pair.at_destination(MoveVerb.RELEASE)
    waits = await pair.at_source(MoveVerb.CLEAN)
    assert not waits["done"]
    assert "shipped" in waits["why"]
    await here.sql.execute(b"UPDATE cell SET metered_until = now() + interval '1 minute'")
    await here.sql.execute(b"UPDATE meter_minutes SET shipped_at = now()")
    done = await pair.at_source(MoveVerb.CLEAN)
    assert done["done"]
    for table in COPIED:
        assert await pair.rows(pair.source, table) == [], table
    assert await here.value("SELECT count(*) FROM pg_publication") == 0
    assert (
        await here.value("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == 0
    )
    assert await here.value("SELECT count(*) FROM jobs WHERE tenant_id = %s", here.b.tenant_id) == 1
    assert (await pair.at_source(MoveVerb.CLEAN))["done"]


async def test_the_control_planes_word_waits_while_a_move_holds_the_tenant(pair: Pair) -> None:
    here = pair.source.world
    await pair.copied()
    await pair.sealed()
    await here.put_tenant(here.a, "SUSPENDED", version=9)
    await here.put_tenant(Fence(tenant_id=here.a.tenant_id, epoch=here.a.epoch + 3), "ACTIVE", version=10)
    known = await here.store.get_tenant(here.a.tenant_id)
    assert known is not None
    assert (known.state, known.ownership_epoch, known.config_version) == ("SEALED", here.a.epoch, 10)
    await pair.at_source(MoveVerb.ABORT, new_epoch=here.a.epoch + 3)
    known = await here.store.get_tenant(here.a.tenant_id)
    assert known is not None
    assert (known.state, known.ownership_epoch) == ("ACTIVE", here.a.epoch + 3)


async def test_an_aborted_move_leaves_no_trace(pair: Pair) -> None:
    here, there = pair.source.world, pair.destination.world
    await here.create(*[new_job(now() + timedelta(hours=1)) for _ in range(5)])
    before = {table: await pair.rows(pair.source, table) for table in COPIED}
    await pair.copied()
    lsn = await pair.sealed()
    await pair.at_destination(MoveVerb.TAIL, lsn=lsn)
    for _ in range(2):
        assert (await pair.at_destination(MoveVerb.ABORT))["undone"]
        assert (await pair.at_source(MoveVerb.ABORT))["undone"]
    for table in COPIED:
        assert await pair.rows(pair.destination, table) == [], table
        assert await pair.rows(pair.source, table) == before[table], table
    assert await there.value("SELECT count(*) FROM pg_subscription WHERE subname LIKE 'ch_move_%%'") == 0
    assert (
        await here.value("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == 0
    )
    assert await here.value("SELECT count(*) FROM pg_roles WHERE rolname = %s",
                            f"ch_move_{pair.move.hex}_1") == 0  # fmt: skip
    await here.create(new_job(now()))
    with pytest.raises(Conflict, match="does not have all"):
        await pair.at_destination(MoveVerb.ACTIVATE, new_epoch=NEW_EPOCH)


async def test_the_seal_waits_for_transactions_that_began_before_it(pair: Pair) -> None:
    here = pair.source.world
    await pair.copied()
    await pair.at_destination(MoveVerb.VERIFY)
    await pair.at_source(MoveVerb.BARRIER)
    async with here.store._database.transaction() as connection:
        await connection.execute(b"SELECT 1")
        with pytest.raises(Conflict, match="still open"):
            await pair.at_source(MoveVerb.SEAL, patience_ms=300)
        # Broken again: the tenant works on, and the move may try anew.
        known = await here.store.get_tenant(here.a.tenant_id)
        assert known is not None
        assert known.state == "ACTIVE"
    await pair.at_source(MoveVerb.BARRIER)
    assert (await pair.at_source(MoveVerb.SEAL))["lsn"] == (await pair.at_source(MoveVerb.SEAL))["lsn"]


async def test_what_differs_is_found(pair: Pair) -> None:
    here, there = pair.source.world, pair.destination.world
    jobs = [new_job(now() + timedelta(hours=1)) for _ in range(10)]
    await here.create(*jobs)
    await pair.copied()
    one, other = jobs[0].job_id, jobs[1].job_id
    await there.sql.execute(b"UPDATE jobs SET name = 'other' WHERE job_id = %s", [one])
    with pytest.raises(Conflict, match="jobs"):
        await pair.at_destination(MoveVerb.VERIFY)
    await there.sql.execute(b"UPDATE jobs SET name = NULL WHERE job_id = %s", [one])
    lsn = await pair.sealed()
    await there.sql.execute(b"DELETE FROM jobs WHERE job_id = %s", [other])
    with pytest.raises(Conflict, match="jobs differs after the seal"):
        await pair.at_destination(MoveVerb.TAIL, lsn=lsn)
    with pytest.raises(Conflict, match="does not have all"):
        await pair.at_destination(MoveVerb.ACTIVATE, new_epoch=NEW_EPOCH)


async def test_a_takeover_begins_again_with_an_empty_destination(pair: Pair) -> None:
    here, there = pair.source.world, pair.destination.world
    await here.create(*[new_job(now() + timedelta(hours=1)) for _ in range(5)])
    await pair.copied()
    # As a new owner does it: the tenant's row was claimed for it, and its move has to begin anew.
    taken = Fence(tenant_id=here.a.tenant_id, epoch=here.a.epoch + 3)
    row = CellRow(pair.source.url)
    settled = await asyncio.to_thread(row.settle, {taken.tenant_id: taken.epoch}, lost="")
    assert settled.adopted == 1
    await here.sql.execute(b"UPDATE cell SET epoch = epoch + 1")
    with pytest.raises(Conflict, match="taken over"):
        await pair.at_source(MoveVerb.BARRIER)
    assert (await pair.at_source(MoveVerb.PROGRESS))["taken_over"]
    pair.attempt, pair.tenant_fence = 2, taken
    await pair.copied()
    assert len(await pair.rows(pair.destination, "jobs")) == 5
    assert (
        await here.value("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == 1
    )
    await pair.handed_off()
    assert await there.value("SELECT state FROM tenants WHERE tenant_id = %s", here.a.tenant_id) == "ACTIVE"


async def test_there_and_back_again(pair: Pair) -> None:
    here = pair.source.world
    await here.create(*[new_job(now() + timedelta(hours=1)) for _ in range(5)])
    await here.claimed(new_job(seconds_ago(5)))
    events = await here.store.events(here.a.tenant_id, after=(0, 0, 0), type_=None, limit=100)
    await pair.copied()
    await pair.handed_off()
    await pair.at_destination(MoveVerb.RELEASE)
    moved = await pair.destination.store.events(here.a.tenant_id, after=(0, 0, 0), type_=None, limit=100)
    assert [e.place for e in moved.events] == [e.place for e in events.events]
    assert moved.events
    await pair.destination.world.create(new_job(now()), fence=pair.moved)

    async def told() -> bool:
        more = await pair.destination.store.events(
            here.a.tenant_id, after=events.reached, type_=None, limit=100
        )
        return len(more.events) == 1

    await eventually(told, timeout=10)
    await here.sql.execute(b"UPDATE cell SET metered_until = now() + interval '1 minute'")
    await here.sql.execute(b"UPDATE meter_minutes SET shipped_at = now()")
    assert (await pair.at_source(MoveVerb.CLEAN))["done"]
    back = Pair(source=pair.destination, destination=pair.source, tenant_fence=pair.moved)
    await back.copied()
    await back.handed_off()
    known = await here.store.get_tenant(here.a.tenant_id)
    assert known is not None
    assert (known.state, known.ownership_epoch) == ("ACTIVE", NEW_EPOCH + 40)
    assert len(await back.rows(back.destination, "jobs")) == 7
