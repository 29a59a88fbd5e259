"""What waits costs the engine's looks nothing, nor does what has died; floods keep nobody waiting."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from cells.contract import SHARDS
from cells.store.fronts import BEGINNING
from cells.store.queries import QUERIES
from tests.component.cells.store.test_schema import explained
from tests.component.cells.workflows.harness import ALL, Flows
from tests.component.cells.workflows.test_isolation import look, statuses, waiters
from tests.waiting import eventually

_MINE = [True] * SHARDS
_PARAMETER = re.compile(r"%\((\w+)\)s")
WAITING = 3_000


async def pages(flows: Flows, name: str, parameters: Mapping[str, Any]) -> int:
    """How many pages a named statement reads by its generic plan, which is the one that connections keep."""
    names = list(dict.fromkeys(_PARAMETER.findall(QUERIES[name].decode())))
    text = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", QUERIES[name].decode())
    values = sql.SQL(", ").join(sql.Literal(parameters[each]) for each in names)
    async with flows.world.store._database.transaction() as connection:
        await connection.execute(f"PREPARE asked AS {text}".encode(), prepare=False)
        try:
            explain = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE asked ({})").format(values)
            cursor = await connection.execute(explain, prepare=False)
            ((plan,),) = await cursor.fetchall()
        finally:
            await connection.execute(b"DEALLOCATE asked", prepare=False)
    top = plan[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


async def looked(flows: Flows, since: datetime = BEGINNING, but_not: list[uuid.UUID] | None = None) -> int:
    """Pages of one whole look."""
    asked = {"mine": _MINE, "but_not": sql_uuids(but_not or []), "since": since}
    due = await pages(flows, "engine_due", {**asked, "items": 80, "limit": 10})
    return due + await pages(flows, "engine_next_timer", {**asked, "within": 1000})


def sql_uuids(some: list[uuid.UUID]) -> str:
    return "{" + ",".join(map(str, some)) + "}"


async def as_many(flows: Flows, count: int) -> None:
    """So many executions beside the one that waits, as it is."""
    await flows.sql(
        b"INSERT INTO workflows SELECT (jsonb_populate_record(w, jsonb_build_object("
        b"'run_id', gen_random_uuid(), 'workflow_id', 'many-' || n,"
        b"'timer_at', now() + interval '30 days' - n * interval '1 s'))).*"
        b" FROM workflows w, generate_series(1, %(count)s) n",
        {"count": count},
    )


@contextmanager
def held_snapshot(url: str) -> Any:
    """Nothing that dies meanwhile leaves an index."""
    with psycopg.connect(url) as another:
        another.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        another.execute(b"SELECT count(*) FROM workflows")
        yield
        another.rollback()


async def test_a_look_costs_the_same_however_many_wait(flows: Flows) -> None:
    await waiters(flows, 1)
    await flows.sql(b"UPDATE workflows SET timer_at = now() + interval '30 days'")
    alone = await looked(flows)
    await as_many(flows, WAITING)
    assert await looked(flows) <= alone + 10
    # Statistics of a moment in which most were about to decide, then of one in which all wait.
    await flows.sql(b"UPDATE workflows SET timer_at = NULL, decide_at = now() + interval '1 day'")
    await flows.sql(b"ANALYZE workflows, workflow_inbox")
    await flows.sql(b"UPDATE workflows SET timer_at = now() + interval '30 days', decide_at = NULL")
    await flows.sql(b"VACUUM workflows")
    assert await looked(flows) <= alone + 10
    await flows.sql(b"ANALYZE workflows, workflow_inbox")
    assert await looked(flows) <= alone + 10
    assert (await look(flows)).taken == 0


async def test_what_has_died_is_not_walked(flows: Flows) -> None:
    await waiters(flows, 1)
    alone = await looked(flows)
    with held_snapshot(flows.url):
        for _ in range(5):
            await flows.sql(
                b"INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data, at)"
                b" SELECT tenant_id, run_id, shard, 'SIGNAL', '{}', now() - interval '1 minute'"
                b" FROM workflows, generate_series(1, 1000)"
            )
            await flows.sql(b"DELETE FROM workflow_inbox")
            await flows.sql(
                b"DO $$ BEGIN FOR i IN 1..200 LOOP UPDATE workflows SET"
                b" decide_at = now() - interval '1 minute',"
                b" timer_at = now() - interval '1 minute' - i * interval '1 ms'; END LOOP; END $$"
            )
        await flows.sql(b"UPDATE workflows SET decide_at = NULL, timer_at = now() + interval '30 days'")
        since = datetime.now(UTC) - timedelta(seconds=2)
        assert await looked(flows, since) <= alone + 20
        assert await looked(flows) > alone + 20


async def test_the_store_looks_from_where_it_found_something(
    flows: Flows,
) -> None:
    (name,) = await waiters(flows, 1)
    store = flows.world.store

    async def step(*, anew: bool) -> int:
        flows.planner.begin()
        stepped = await store.step_workflows(
            flows.planner, shards=ALL, but_not=(), limit=10, host_id=flows.world.host_id, anew=anew
        )
        return stepped.taken

    async def has_moved_on() -> bool:
        assert await step(anew=False) == 0
        return store._to_step.since() > datetime.now(UTC) - timedelta(seconds=10)

    await eventually(has_moved_on)  # a look from the beginning comes once a second
    await flows.signal(name, name="go")
    await flows.sql(b"UPDATE workflow_inbox SET at = at - interval '1 hour'")
    assert await step(anew=True) == 1
    assert await statuses(flows, [name]) == ["COMPLETED"]


async def test_words_of_one_tenant_keep_no_other_waiting(flows: Flows) -> None:
    names = await waiters(flows, 4)
    other = Flows(world=replace(flows.world, a=flows.world.b))
    (theirs,) = await waiters(other, 1)
    for name in names:
        for n in range(100):
            await flows.signal(name, signal_id=f"s-{n}", name="go")
    await other.signal(theirs, name="go")
    # Ten are taken of the first eighty words; the other tenant's is the four hundred and first.
    stepped = await look(flows, limit=10)
    assert {turn.taken.row.tenant_id for turn in stepped.turns} == {flows.tenant, other.tenant}
    assert await statuses(other, [theirs]) == ["COMPLETED"]


async def worded(flows: Flows, name: str, each: int) -> None:
    """So many words for each execution whose id begins so."""
    await flows.sql(
        b"INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)"
        b" SELECT tenant_id, run_id, shard, 'SIGNAL', '{}' FROM workflows, generate_series(1, %(each)s::int)"
        b" WHERE starts_with(workflow_id, %(name)s)",
        {"each": each, "name": name},
    )


async def test_a_flood_is_looked_at_no_further_than_it_may_be_taken(flows: Flows) -> None:
    other = Flows(world=replace(flows.world, a=flows.world.b))
    await waiters(flows, 1)
    await as_many(flows, 40)
    await waiters(other, 2)
    await worded(flows, "many-", 5)
    await worded(flows, "waiter-", 1)
    async with flows.world.store._database.transaction() as connection:
        due = await flows.world.store._due(connection, ALL, (), 5)
    turns = [(tenant, run_id) for tenant, run_id, at in due if at is None]
    assert len(set(turns)) == len(turns) == 10
    # Each one's first, each one's second; then those who have more.
    assert {tenant for tenant, _ in turns[:2]} == {tenant for tenant, _ in turns[2:4]}
    assert [tenant for tenant, _ in turns].count(other.tenant) == 2


async def test_words_for_what_is_put_off_hide_no_other_execution(flows: Flows) -> None:
    await waiters(flows, 1)
    await as_many(flows, 3)
    await flows.sql(
        b"UPDATE workflows SET decide_at = now() + interval '1 minute'"
        b" WHERE run_id = (SELECT min(run_id::text)::uuid FROM workflows)"
    )
    put_off, *others = [
        run_id for (run_id,) in await flows.sql(b"SELECT run_id FROM workflows ORDER BY run_id")
    ]
    for run_id, count in ((put_off, 100), *((run_id, 1) for run_id in others)):
        await flows.sql(
            b"INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)"
            b" SELECT tenant_id, run_id, shard, 'SIGNAL', '{}'"
            b" FROM workflows, generate_series(1, %(count)s::int) WHERE run_id = %(run)s",
            {"count": count, "run": run_id},
        )
    async with flows.world.store._database.transaction() as connection:
        due = await flows.world.store._due(connection, ALL, (), 10)
    assert {run_id for _, run_id, _ in due} == set(others)


async def test_words_of_who_is_passed_over_are_not_read(flows: Flows) -> None:
    (name,) = await waiters(flows, 1)
    alone = await looked(flows)
    await flows.sql(
        b"INSERT INTO workflow_inbox (tenant_id, run_id, shard, kind, data)"
        b" SELECT tenant_id, run_id, shard, 'SIGNAL', '{}' FROM workflows, generate_series(1, 5000)"
    )
    await flows.sql(b"VACUUM workflow_inbox")
    assert await looked(flows, but_not=[flows.tenant]) <= alone + 20
    await flows.world.put_tenant(flows.fence, "SUSPENDED", version=2)
    assert await looked(flows) <= alone + 20
    other = Flows(world=replace(flows.world, a=flows.world.b))
    (theirs,) = await waiters(other, 1)
    await other.signal(theirs, name="go")
    assert (await look(other, limit=10)).taken == 1
    assert await statuses(other, [theirs]) == ["COMPLETED"]
    assert await statuses(flows, [name]) == ["RUNNING"]


async def test_timers_of_a_tenant_are_counted_by_their_index(flows: Flows) -> None:
    await waiters(flows, 1)
    await as_many(flows, WAITING)
    await flows.sql(b"UPDATE workflows SET timer_at = NULL WHERE workflow_id <> 'many-1'")
    await flows.sql(b"VACUUM workflows")
    assert await pages(flows, "create_pending", {"tenant": flows.tenant, "limit": 10}) < 20


#: Which index finds executions in each statement, as long as nobody has looked at the table.
INDEXES = {
    "engine_lock": "workflows_pkey",
    "engine_advance": "workflows_pkey",
    "engine_tell": "workflows_pkey",
    "engine_tell_latest": "workflows_holder",
    "engine_start": "workflows_pkey",
    "workflow_signal_get": "workflows_pkey",
    "workflow_latest": "workflows_by_id",
    "workflow_latest_of": "workflows_by_id",
    "workflow_share_latest": "workflows_by_id",
    "workflow_lock_latest": "workflows_by_id",
    "workflow_list": "workflows_by_start",
    "workflow_list_reached": "workflows_by_start",
}


@pytest.mark.parametrize("name", INDEXES)
async def test_an_execution_is_found_by_its_own_index_from_the_first_one_on(flows: Flows, name: str) -> None:
    plan = await explained(flows.world.store, name)
    used = set(re.findall(r"(?:using|on) (workflows_\w+)", plan))
    assert used == {INDEXES[name]}, plan
