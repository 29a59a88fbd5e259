"""Closed workflows leave the store for the lake, and are found there."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from cells.api.history import find_workflows
from cells.api.problems import Problem
from cells.lake.folder import FolderFiles
from cells.lake.reader import LakeReader
from cells.lake.workflows import WorkflowArchive
from cells.lake.writer import Place
from cells.workflow_ports import WorkflowFilter
from tests.component.cells.store.world import now
from tests.component.cells.workflows.harness import Flows
from tests.component.cells.workflows.test_chains import LOOP

KEPT = timedelta(days=30)


async def nothing() -> None:
    """The right to write is ours."""


class Lake:
    """One in a folder."""

    def __init__(self, flows: Flows, folder: Path):
        self.flows = flows
        self.files = FolderFiles(folder / "lake")
        place = Place(region="local", cell="cell-1")
        self.archive = WorkflowArchive(flows.world.store, self.files, place, renew=nothing)
        self.reader = LakeReader(flows.world.store, self.files, folder / "scratch")

    async def move_out(self) -> int:
        return await self.archive.move_out((now() - KEPT).date(), asyncio.Event())


async def ordered(flows: Flows, name: str) -> None:
    await flows.start(name, given={"order_id": 1})
    await flows.settle()
    await flows.do("payments", result={"charge": name})
    await flows.do("inventory")
    await flows.signal(name, f"s-{name}")
    await flows.settle()
    await flows.do("shipping")


async def aged(flows: Flows, name: str, days: int) -> None:
    await flows.sql(
        b"UPDATE workflows SET closed_at = closed_at - %(age)s::interval WHERE workflow_id = %(name)s",
        {"age": timedelta(days=days), "name": name},
    )


async def test_old_ones_leave_and_are_read_in_the_lake(flows: Flows, tmp_path: Path) -> None:
    await flows.register()
    lake = Lake(flows, tmp_path)
    for name in ("old", "recent"):
        await ordered(flows, name)
    await flows.start("open", given={})
    await flows.settle()
    row = await flows.row("old")
    events = await flows.world.store.workflow_history(flows.tenant, row.run_id, after=0, limit=1_000)
    await aged(flows, "old", 40)
    assert await lake.move_out() == 1
    assert await lake.move_out() == 0
    assert await flows.store.get_workflow(flows.tenant, "old") is None
    for table in (b"workflow_events", b"workflow_signals"):
        statement = b"SELECT count(*) FROM " + table + b" WHERE run_id = %(run)s"
        assert await flows.sql(statement, {"run": row.run_id}) == [(0,)]
    assert {(await flows.row(name)).workflow_id for name in ("recent", "open")} == {"recent", "open"}

    found = await lake.reader.get_workflow(flows.tenant, "old", None)
    assert found is not None
    assert (found.run_id, found.status, found.next_seq) == (row.run_id, "COMPLETED", row.next_seq)
    assert (found.definition, found.version, found.result) == (row.definition, row.version, row.result)
    read = await lake.reader.workflow_history(flows.tenant, found, after=0, limit=1_000)
    assert [(e.seq, e.type, e.data) for e in read] == [(e.seq, e.type, e.data) for e in events]
    (last,) = await lake.reader.workflow_history(flows.tenant, found, after=row.next_seq - 2, limit=5)
    assert last.type == "COMPLETED"
    assert await lake.reader.get_workflow(flows.tenant, "old", row.run_id) is not None
    assert await lake.reader.get_workflow(flows.world.b.tenant_id, "old", None) is None
    assert await lake.reader.get_workflow(flows.tenant, "recent", None) is None


async def test_what_is_not_over_stays(flows: Flows, tmp_path: Path) -> None:
    await flows.register()
    lake = Lake(flows, tmp_path)
    await ordered(flows, "late")
    await aged(flows, "late", 40)
    await flows.signal("late", "behind")  # recorded as late, which is yet to be done
    assert await lake.move_out() == 0
    await flows.settle()
    assert await lake.move_out() == 1


async def test_what_changes_while_it_is_written_is_in_no_file(flows: Flows, tmp_path: Path) -> None:
    await flows.register()
    lake = Lake(flows, tmp_path)
    for name in ("one", "two", "late"):
        await ordered(flows, name)
        await aged(flows, name, 40)
    late = (await flows.row("late")).run_id
    put = lake.files.put

    def put_late(name: str, path: Path) -> None:
        put(name, path)
        with psycopg.connect(flows.url, autocommit=True) as sql:
            sql.execute(
                b"INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)"
                b" SELECT tenant_id, run_id, shard, 'CANCEL', '{}' FROM workflows WHERE run_id = %s"
                b" AND NOT EXISTS (SELECT FROM workflow_inbox)",
                [late],
            )

    lake.files.put = put_late  # type: ignore[method-assign]
    assert await lake.move_out() == 2
    found = await lake.reader.list_workflows(flows.tenant, WorkflowFilter(), after=None, limit=10)
    assert {row.workflow_id for row in found.rows} == {"one", "two"}
    files = await flows.world.store.lake_workflow_files()
    assert {file.name for _, file in files} == {file.name for file in lake.files.list("workflows/")}
    assert (await flows.row("late")).run_id == late
    assert await flows.events(await flows.row("late"))


async def test_a_list_goes_without_the_lake_as_far_as_it_can(flows: Flows, tmp_path: Path) -> None:
    await flows.register()
    lake = Lake(flows, tmp_path)
    call: Any = SimpleNamespace(
        tenant_id=flows.tenant, services=SimpleNamespace(store=flows.world.store, history=lake.reader)
    )
    await ordered(flows, "old")
    await aged(flows, "old", 40)
    await flows.sql(b"UPDATE workflows SET started_at = started_at - interval '41 days'")
    assert await lake.move_out() == 1
    await ordered(flows, "recent")
    for file in list(lake.files.list("workflows/")):
        lake.files.delete([file.name])
    found = await find_workflows(call, WorkflowFilter(), after=None, limit=10)
    assert [row.workflow_id for row in found.rows] == ["recent"]
    assert found.reached is not None, "there may be more"
    with pytest.raises(Problem) as caught:
        await find_workflows(call, WorkflowFilter(), after=found.reached, limit=10)
    assert caught.value.status == 503
    # Who has nothing there does not miss it.
    call.tenant_id = flows.world.b.tenant_id
    found = await find_workflows(call, WorkflowFilter(), after=None, limit=10)
    assert (list(found.rows), found.reached) == ([], None)


async def test_files_go_when_their_time_is_over(flows: Flows, tmp_path: Path) -> None:
    await flows.register()
    lake = Lake(flows, tmp_path)
    await ordered(flows, "old")
    await aged(flows, "old", 40)
    await lake.move_out()
    assert await lake.archive.expire((now() - timedelta(days=60)).date()) == 0
    assert await lake.archive.expire((now() - KEPT).date()) == 1
    assert await lake.reader.get_workflow(flows.tenant, "old", None) is None
    assert list(lake.files.list("workflows/")) == []


async def test_an_id_that_left_stays_used(flows: Flows, tmp_path: Path) -> None:
    await flows.register()
    lake = Lake(flows, tmp_path)
    assert not await flows.store.workflow_has_left(flows.tenant, "old")
    await ordered(flows, "old")
    before = await flows.row("old")
    await aged(flows, "old", 40)
    assert await lake.move_out() == 1
    assert await flows.store.workflow_has_left(flows.tenant, "old")
    assert not await flows.store.workflow_has_left(flows.world.b.tenant_id, "old")
    again, created = await flows.start("old", given={"order_id": 1})
    assert (again.run_id, again.status, again.version, created) == (before.run_id, "COMPLETED", 7, False)
    other, created = await flows.start("old", given={"order_id": 2})
    assert created
    await flows.settle()
    task = await flows.do("payments")
    assert task.claim.idempotency_key != "old:charge_card", "that key was used"
    # An id's first execution of all leaves last of all: what is kept is the latest.
    await flows.tell("TERMINATE", "old")
    await flows.settle()
    await aged(flows, "old", 35)
    assert await lake.move_out() == 1
    assert await flows.sql(b"SELECT run_id, status FROM workflow_ids_used") == [(other.run_id, "TERMINATED")]
    await lake.archive.expire((now() - KEPT).date())
    assert await flows.sql(b"SELECT count(*) FROM workflow_ids_used") == [(0,)]
    _, created = await flows.start("old", given={"order_id": 1})
    assert created


async def test_a_chain_keeps_its_signals_as_long_as_it_goes_on(flows: Flows, tmp_path: Path) -> None:
    lake = Lake(flows, tmp_path)
    await flows.register(LOOP)
    first, _ = await flows.start("w-1", "loop", given={"n": 1})
    await flows.settle()
    await flows.signal("w-1", "s-1", "other")
    await flows.settle()
    await flows.do("q")
    await flows.sql(
        b"UPDATE workflows SET closed_at = closed_at - interval '40 days' WHERE run_id = %(run)s",
        {"run": first.run_id},
    )
    assert await lake.move_out() == 1
    taken = await flows.signal("w-1", "s-1", "other")
    assert taken is not None
    assert taken.status == "duplicate"
    await flows.tell("TERMINATE", "w-1")
    await flows.settle()
    await aged(flows, "w-1", 40)
    assert await lake.move_out() == 1
    assert await flows.sql(b"SELECT count(*) FROM workflow_signals") == [(0,)]


async def test_files_that_a_crash_left_go(flows: Flows, tmp_path: Path) -> None:
    await flows.register()
    lake = Lake(flows, tmp_path)
    await ordered(flows, "old")
    await aged(flows, "old", 40)
    await lake.move_out()
    (kept,) = [file.name for file in lake.files.list("workflows/")]
    stray = tmp_path / "stray"
    stray.write_bytes(b"x")
    lake.files.put(kept.rpartition("/")[0] + "/stray.parquet", stray)
    assert await lake.archive.sweep(timedelta(days=1)) == 0, "somebody may be about to make it a part"
    assert await lake.archive.sweep(timedelta(0)) == 1
    assert [file.name for file in lake.files.list("workflows/")] == [kept]


async def test_lists_go_on_in_the_lake(flows: Flows, tmp_path: Path) -> None:
    await flows.register()
    lake = Lake(flows, tmp_path)
    for days, name in ((60, "oldest"), (45, "older"), (40, "old"), (0, "recent")):
        await ordered(flows, name)
        await aged(flows, name, days)
        await flows.sql(
            b"UPDATE workflows SET started_at = started_at - %(age)s::interval WHERE workflow_id = %(name)s",
            {"age": timedelta(days=days, hours=1), "name": name},
        )
    await flows.start("long", given={})
    await flows.sql(
        b"UPDATE workflows SET started_at = started_at - interval '50 days' WHERE workflow_id = 'long'"
    )
    assert await lake.move_out() == 3
    call: Any = SimpleNamespace(
        tenant_id=flows.tenant, services=SimpleNamespace(store=flows.world.store, history=lake.reader)
    )

    async def pages(limit: int, **where: Any) -> list[str]:
        """Ids of all pages, one after the other."""
        names: list[str] = []
        after = None
        for _ in range(10):
            found = await find_workflows(call, WorkflowFilter(**where), after=after, limit=limit)
            names += [row.workflow_id for row in found.rows]
            if len(found.rows) < limit and found.reached is None:
                return names
            last = found.rows[-1]
            after = found.reached or (last.started_at, last.run_id)
        raise AssertionError("it never ends")

    everything = ["recent", "old", "older", "long", "oldest"]
    for limit in (1, 2, 3, 10):
        assert await pages(limit) == everything, limit
    assert await pages(2, status="COMPLETED") == ["recent", "old", "older", "oldest"]
    assert await pages(2, prefix="old") == ["old", "older", "oldest"]
    assert await pages(2, definition="another") == []
    (one,) = (await lake.reader.list_workflows(flows.tenant, WorkflowFilter(), after=None, limit=1)).rows
    assert one.workflow_id == "old"
    # Of files that were written before it was known whose they hold, every tenant's list looks at each.
    await flows.sql(b"DELETE FROM lake_workflow_tenants")
    await flows.sql(b"UPDATE lake_workflow_files SET by_tenant = false")
    assert await pages(2) == everything
    call.tenant_id = flows.world.b.tenant_id
    assert await pages(5) == []


async def test_a_list_looks_at_no_file_that_holds_nothing_of_its_page(flows: Flows, tmp_path: Path) -> None:
    await flows.register()
    lake = Lake(flows, tmp_path)
    for days, name in ((60, "oldest"), (45, "older"), (40, "old")):
        await ordered(flows, name)
        await aged(flows, name, days)
        await flows.sql(
            b"UPDATE workflows SET started_at = started_at - %(age)s::interval WHERE workflow_id = %(name)s",
            {"age": timedelta(days=days, hours=1), "name": name},
        )
    assert await lake.move_out() == 3
    of_tenant = await flows.world.store.lake_workflow_files_of(flows.tenant)
    assert [of.day for of in of_tenant] == [(now() - timedelta(days=days)).date() for days in (40, 45, 60)]
    assert await flows.world.store.lake_workflow_files_of(flows.world.b.tenant_id) == []
    for file in list(lake.files.list("workflows/")):
        if f"date={of_tenant[0].day}" not in file.name:
            lake.files.delete([file.name])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cells.lake.workflows._AT_ONCE", 1)
        found = await lake.reader.list_workflows(flows.tenant, WorkflowFilter(), after=None, limit=1)
    assert [row.workflow_id for row in found.rows] == ["old"]
    assert await lake.archive.expire((now() - timedelta(days=50)).date()) == 1
    assert len(await flows.world.store.lake_workflow_files_of(flows.tenant)) == 2
