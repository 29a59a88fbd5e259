"""Days of runs on their way from the store to the lake, and what never may happen to them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cells.domain.run import RunState
from cells.history import COLUMNS
from cells.lake.folder import FolderFiles
from cells.ports import Retryable
from tests.component.cells.lake.old_days import OldDays
from tests.component.cells.store.world import World


@pytest.fixture(params=["folder_files", "s3_files"])
def past(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> OldDays:
    """With a folder and with S3."""
    return OldDays(world, request.getfixturevalue(request.param), tmp_path)


@pytest.fixture
def here(folder_files: FolderFiles, world: World, tmp_path: Path) -> OldDays:
    """With a folder, where the kind of place does not matter."""
    return OldDays(world, folder_files, tmp_path)


class Faulty:
    """The store, failing where a test says."""

    def __init__(self, store: Any, **instead: Callable[..., Any]) -> None:
        self._store, self._instead = store, instead

    def __getattr__(self, name: str) -> Any:
        return self._instead.get(name) or getattr(self._store, name)


async def crash(*_: Any, **__: Any) -> Any:
    raise Retryable("killed")


async def test_a_day_that_is_over_is_written_once(past: OldDays) -> None:
    for days_ago in (2, 0):
        await past.partition(days_ago)
    mine = await past.run(past.at(2, hours=5))
    theirs = await past.run(
        past.at(2, hours=3), "FAILED", tenant_id=past.world.b.tenant_id, reason="attempts"
    )
    await past.run(past.at(2, hours=1), "RETRY_WAIT")
    await past.run(past.at(0))
    await past.round()
    await past.round()
    rows = past.table(2)
    assert {row["parent_id"] for row in rows} == {str(mine.parent_id), str(theirs.parent_id)}
    assert [tuple(row) for row in rows] == [COLUMNS] * 2
    (failed,) = [row for row in rows if row["state"] == "FAILED"]
    assert (failed["reason"], failed["scheduled_for"]) == ("attempts", past.at(2, hours=3))
    assert past.everything(0) == []
    manifest = past.manifest(2)
    (name,) = past.names(2)
    past.files.fetch(name, past.scratch / "copy")
    content = (past.scratch / "copy").read_bytes()
    assert manifest["files"] == [
        {
            "name": name.rpartition("/")[2],
            "rows": 2,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    ]
    assert (manifest["rows"], manifest["generation"], manifest["overlapping"]) == (2, 1, False)
    assert past.counted("lake_rows_written_total") == 2
    assert past.counted("lake_days_unwritten") == 0


async def test_who_ends_late_gets_a_further_file(here: OldDays) -> None:
    await here.partition(2)
    early = await here.run(here.at(2))
    late = await here.run(here.at(2, hours=1), "RETRY_WAIT")
    await here.round()
    await here.world.rows("UPDATE lake_days SET looked_at = looked_at - interval '7 hours' RETURNING 1")
    await here.end(late)
    await here.round()
    assert len(here.names(2)) == 2
    assert {row["parent_id"] for row in here.table(2)} == {str(early.parent_id), str(late.parent_id)}
    assert here.manifest(2)["overlapping"] is True
    await here.round()
    assert len(here.names(2)) == 2, "nothing is unfinished any more"


async def test_an_old_day_leaves_the_store_and_is_found_in_the_lake(past: OldDays) -> None:
    table = await past.partition(40)
    young = await past.partition(20)
    keys = [await past.run(past.at(40, hours=n), ordinal=n) for n in range(5)]
    strange = await past.run(past.at(40, hours=9), tenant_id=past.world.b.tenant_id)
    await past.out()
    assert [await past.exists(name) for name in (table, young)] == [False, True]
    store, tenant = past.world.store, past.world.a.tenant_id
    assert await store.get_run(tenant, keys[0]) is None
    row = await past.reader.get_run(tenant, keys[3])
    assert row is not None
    assert (row.key, row.state, row.started_at) == (keys[3], RunState.SUCCEEDED, past.at(40, hours=3))
    assert [attempt.body for attempt in row.attempts] == ["said"]
    assert await past.reader.get_run(tenant, strange) is None
    assert await past.keys() == keys[::-1]
    assert await past.keys(after=keys[3], limit=2) == [keys[2], keys[1]]
    assert await past.keys(job_id=keys[1].parent_id) == [keys[1]]
    first, third = past.at(40, hours=1), past.at(40, hours=3)
    assert await past.keys(scheduled_from=first, scheduled_until=third) == [keys[2], keys[1]]
    assert await past.keys(due_from=first, due_until=third) == [keys[2], keys[1]]
    assert await past.keys(finished_from=first, finished_until=third) == [keys[2], keys[1]]
    assert await past.keys(states=(RunState.FAILED,)) == []
    assert await past.keys(target_id="tgt_none") == []
    assert past.counted("lake_days_dropped_total") == 1


async def test_a_day_stays_until_every_run_is_over_and_metered(here: OldDays) -> None:
    table = await here.partition(40)
    waiting = await here.run(here.at(40), "RETRY_WAIT")
    await here.out()
    await here.out()
    assert await here.exists(table), "a run is not over"
    assert here.counted("lake_days_overdue") == 1
    await here.end(waiting)
    await here.world.rows(
        "UPDATE lake_days SET looked_at = looked_at - interval '7 hours' RETURNING 1",
    )
    await here.world.rows("UPDATE cell SET metered_until = now() - interval '1 day' RETURNING 1")
    await here.round()
    await here.round()
    assert await here.exists(table), "its end is not metered"
    await here.metered()
    await here.round()
    assert not await here.exists(table)
    assert [row["parent_id"] for row in here.table(40)] == [str(waiting.parent_id)]


async def test_a_run_set_going_again_after_it_was_verified_keeps_its_day(here: OldDays) -> None:
    table = await here.partition(40)
    key = await here.run(here.at(40), "FAILED")
    store = here.world.store
    await here.round()
    await here.metered()

    async def redriven_first(*arguments: Any, **more: Any) -> bool:
        await here.world.rows(
            "UPDATE runs SET state = 'DUE', series = 2, timer_at = now(), finished_at = NULL RETURNING 1"
        )
        return await store.drop_runs_day(*arguments, **more)

    await here.round(store=Faulty(store, drop_runs_day=redriven_first))
    assert await here.exists(table)
    await here.end(key)
    await here.metered()
    await here.world.rows("UPDATE lake_days SET looked_at = looked_at - interval '7 hours' RETURNING 1")
    for _ in range(3):
        await here.round()
    assert not await here.exists(table)
    row = await here.reader.get_run(here.world.a.tenant_id, key)
    assert row is not None
    assert (row.state, row.series) == (RunState.SUCCEEDED, 2)
    assert len(here.table(40)) == 1, "one file with one state of it"


async def test_files_that_are_not_what_was_written_are_written_anew_before_anything_goes(
    past: OldDays,
) -> None:
    table = await past.partition(40)
    key = await past.run(past.at(40))
    await past.round()
    (name,) = past.names(40)
    (past.scratch / "junk").write_bytes(b"junk")
    past.files.put(name, past.scratch / "junk")
    await past.metered()
    await past.round()
    assert not await past.exists(table)
    assert past.names(40) != [name]
    assert [row["parent_id"] for row in past.table(40)] == [str(key.parent_id)]
    assert past.counted("lake_mismatches_total") == 1


@pytest.mark.parametrize("where", ["lake_commit", "lake_page", "drop_runs_day", "watch_runs_day"])
async def test_a_crash_anywhere_makes_neither_a_loss_nor_a_duplicate(here: OldDays, where: str) -> None:
    table = await here.partition(40)
    keys = [await here.run(here.at(40, hours=n)) for n in range(3)]
    faulty = Faulty(here.world.store, **{where: crash})
    for _ in range(2):
        with contextlib.suppress(Retryable):
            await here.round(store=faulty)
        await here.metered()
    assert await here.exists(table)
    await here.out()
    assert not await here.exists(table)
    assert await here.keys() == keys[::-1]
    known = {file["name"] for file in here.manifest(40)["files"]}
    for name in here.names(40):
        if name.rpartition("/")[2] not in known:
            os.utime(here.files.local(name) or "", (0, 0))
    await here.round()
    assert {name.rpartition("/")[2] for name in here.names(40)} == known, "nobody's files are removed"


async def test_runs_outside_of_every_partition_leave_too(here: OldDays) -> None:
    await here.partition(40)
    inside = await here.run(here.at(40, hours=1))
    await here.out()
    stray = await here.run(here.at(40, hours=2), "SKIPPED", skipped=3, reason="paused")
    older = await here.run(here.at(50))
    open_one = await here.run(here.at(50, hours=1), "DUE")
    young = await here.run(here.at(3, hours=1))
    await here.world.rows("UPDATE cell SET metered_until = now() + interval '5 minutes' RETURNING 1")
    await here.round()
    await here.round()
    rest = await here.world.rows("SELECT parent_id FROM runs_default ORDER BY 1")
    assert {row[0] for row in rest} == {open_one.parent_id, young.parent_id}
    assert await OldDays(here.world, here.files, here.scratch).keys() == [stray, inside, older]


async def test_history_ends_after_its_time(here: OldDays) -> None:
    await here.partition(40)
    await here.run(here.at(40))
    await here.run(here.at(500))
    await here.out()
    await here.round()
    assert here.everything(500) == []
    assert here.everything(40) != []
    await here.round(history=35)
    assert here.everything(40) == []
    assert await here.world.value("SELECT count(*) FROM lake_days") == 0


async def test_one_process_writes_at_a_time(here: OldDays) -> None:
    await here.partition(2)
    await here.run(here.at(2))
    assert await here.world.store.lake_take(host_id=here.world.host_id + 1, seconds=60)
    await here.round()
    assert here.everything(2) == []
    await here.world.rows("UPDATE lake_writer SET until = now() RETURNING 1")
    await here.round()
    assert len(here.names(2)) == 1


async def test_who_was_overtaken_leaves_no_file(here: OldDays) -> None:
    await here.partition(2)
    await here.run(here.at(2))
    store = here.world.store

    async def overtaken(day: Any, **commit: Any) -> Any:
        await store.lake_commit(day, **(commit | {"files": []}))
        return await store.lake_commit(day, **commit)

    with pytest.raises(Retryable):
        await here.round(store=Faulty(store, lake_commit=overtaken))
    assert here.everything(2) == []


async def test_a_busy_day_is_left_alone(here: OldDays, cell_database_url: str) -> None:
    table = await here.partition(40)
    await here.run(here.at(40))
    await here.round()
    await here.metered()
    async with await psycopg.AsyncConnection.connect(cell_database_url) as reader:
        await reader.execute(f"SELECT count(*) FROM {table}".encode())  # noqa: S608
        await here.round()
        assert await here.exists(table)
    await here.round()
    assert not await here.exists(table)


async def test_the_loop_goes_on_after_a_fault(here: OldDays) -> None:
    await here.partition(2)
    await here.run(here.at(2))
    stop = asyncio.Event()
    calls = 0

    async def fails_once(**more: Any) -> bool:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Retryable("away")
        taken = await here.world.store.lake_take(**more)
        if calls == 3:
            stop.set()
        return taken

    service = here.service(store=Faulty(here.world.store, lake_take=fails_once))
    service._interval = 0.01
    await asyncio.wait_for(service.run(stop), 20)
    assert len(here.names(2)) == 1
    assert here.counted("lake_rounds_failed_total") == 1


async def test_time_is_bounded_and_a_search_goes_on_where_it_ended(here: OldDays) -> None:
    keys = []
    for days_ago in (42, 41, 40):
        await here.partition(days_ago)
        keys.append(await here.run(here.at(days_ago, hours=1)))
    await here.out()
    here.reader._patience = 0.0
    found = await here.found()
    assert (list(found.runs), found.reached and found.reached.scheduled_for) == ([], here.at(39))
    here.reader._patience = 5.0
    assert await here.keys(after=found.reached) == keys[::-1]


async def test_changes_of_several_watched_days_make_nobody_wait(
    here: OldDays, cell_database_url: str
) -> None:
    """Two that change two days each, in opposite order: neither waits for the other, and both count."""
    days = [here.day(n) for n in (40, 41)]
    for n in (40, 41):
        await here.partition(n)
        for hours in (1, 2):
            await here.run(here.at(n, hours=hours), "RETRY_WAIT")
    seen = [(await here.world.store.watch_runs_day(day))[0] for day in days]
    touch = "UPDATE runs SET deaths = deaths + 1 WHERE scheduled_for = %s"
    async with (
        await psycopg.AsyncConnection.connect(cell_database_url) as one,
        await psycopg.AsyncConnection.connect(cell_database_url) as two,
    ):
        for connection in (one, two):
            await connection.execute("SET lock_timeout = '5s'")
        await one.execute(touch, [here.at(40, hours=1)])
        await two.execute(touch, [here.at(41, hours=1)])
        await one.execute(touch, [here.at(41, hours=2)])
        await two.execute(touch, [here.at(40, hours=2)])
    after = [(await here.world.store.watch_runs_day(day))[0] for day in days]
    assert after == [count + 2 for count in seen]
    assert not await here.world.store.drop_runs_day(days[0], seen=seen[0])
