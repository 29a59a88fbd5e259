"""STRICT: waiting until another region has what was committed here. A real primary with two standbys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from cells.ownership.cell_row import CellRow
from cells.ports import LeaseLost
from cells.records import StrictShut, Unconfirmed
from cells.store.migrate import migrate
from cells.store.postgres import PostgresStore
from tests.component.cells.standby.clusters import Sites, three_sites

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
async def world() -> AsyncIterator[tuple[Sites, PostgresStore, CellRow]]:
    with three_sites() as sites:
        a = sites["a"]
        a.execute("CREATE DATABASE cell")
        url = a.url.rsplit("/", 1)[0] + "/cell"
        await asyncio.to_thread(migrate, url)
        async with PostgresStore(url, cell_name="cell", pool_size=4, leased=True) as store:
            yield sites, store, CellRow(url)


async def test_what_was_committed_is_confirmed_by_one_standby(
    world: tuple[Sites, PostgresStore, CellRow],
) -> None:
    sites, store, row = world
    with pytest.raises(LeaseLost):
        await store.confirm()
    row.extend(row.probe(), epoch=2, seconds=600)
    await store.confirm()

    # A takeover was decided without a site: nothing STRICT holds until that was read, or given up for good.
    note = "INSERT INTO unread_sites (region, epoch, lost) VALUES ('d', 2, 'z')"
    with psycopg.connect(sites["a"].url.rsplit("/", 1)[0] + "/cell", autocommit=True) as sql:
        sql.execute(note)
    with pytest.raises(StrictShut, match="only the site in d has"):
        await store.confirm()
    await store.confirm(strict=False)
    assert not row.give_up("d", epoch=1, reason="under another owner")
    assert row.give_up("d", epoch=2, reason="it burnt down")
    await store.confirm()

    sites["b"].stop()
    at = sites["a"].cluster.look().replayed
    await store.confirm()
    assert any(one.flushed >= at for one in sites["a"].cluster.standbys())

    # Nobody else waits for a standby: only who asks does.
    sites["c"].stop()
    sites["a"].execute("INSERT INTO facts VALUES (1)")
    with pytest.raises(Unconfirmed, match="no other region"):
        await store.confirm()
    # All who ask at the same time are told the same.
    outcomes = await asyncio.gather(*(store.confirm() for _ in range(20)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {Unconfirmed}

    sites["c"].start()
    sites.caught_up("a", "c")
    await store.confirm()
    assert sites["c"].rows() == [1]


async def test_many_who_ask_share_few_marks(world: tuple[Sites, PostgresStore, CellRow]) -> None:
    sites, store, row = world
    row.extend(row.probe(), epoch=2, seconds=600)
    before = sites["a"].execute("SELECT xact_commit FROM pg_stat_database WHERE datname = 'cell'")
    await asyncio.gather(*(store.confirm() for _ in range(200)))
    after = sites["a"].execute("SELECT xact_commit FROM pg_stat_database WHERE datname = 'cell'")
    assert after[0][0] - before[0][0] < 100
