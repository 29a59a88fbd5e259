"""A tenant is erased from a cell: no table, file or key has anything of it, and its neighbour has all."""

from __future__ import annotations

import io
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import redis

from cells.clock import SystemClock
from cells.domain.run import RunState
from cells.erasure.lake import HistoryEraser
from cells.erasure.service import ErasureService
from cells.lake.files import LakeFiles
from cells.ports import Fence, NotOwner, RunFilter, TenantConfig, TenantPlacement
from cells.store.transfer import TransferStore
from cells.timers.queue import ValkeyQueue
from tests.component.cells.lake.old_days import PLACE, OldDays
from tests.component.cells.store.world import (
    EPOCH,
    World,
    definition,
    member_of,
    new_job,
    now,
    seconds_ago,
    target,
)

SECRET = "planted-secret-7d1f"
_TABLES = """
SELECT c.relname::text FROM pg_class c
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1
"""


@pytest.fixture
async def queue(valkey_url: str) -> AsyncIterator[ValkeyQueue]:
    queue = ValkeyQueue(valkey_url, cell="cell-1", clock=SystemClock())
    await queue.open()
    yield queue
    await queue.close()


@pytest.fixture(params=["folder", "s3"])
def files(request: pytest.FixtureRequest) -> LakeFiles:
    return request.getfixturevalue(f"{request.param}_files")  # type: ignore[no-any-return]


def _service(world: World, url: str, queue: ValkeyQueue, files: LakeFiles, **more: Any) -> ErasureService:
    sessions = TransferStore(url, cell_name="cell-1")
    return ErasureService(sessions, queue, HistoryEraser(sessions, files, PLACE), **more)


async def _inhabit(world: World, fence: Fence, old: OldDays, queue: ValkeyQueue) -> None:
    """Something of everything that a tenant leaves in a cell."""
    waiting = [
        new_job(now(), definition(headers={"x-secret": SECRET}), payload=SECRET.encode()) for _ in range(5)
    ]
    await world.create(*waiting, fence=fence)
    await queue.add([member_of(job, fence.tenant_id) for job in waiting])
    claim = await world.claimed(new_job(seconds_ago(5)), fence=fence)
    assert await world.complete(claim, RunState.FAILED)  # a dead letter
    await world.claimed(new_job(seconds_ago(5)), fence=fence)  # under way
    for days_ago in (9, 8):
        await old.partition(days_ago)
        for hour in range(3):
            await old.run(old.at(days_ago, hours=hour), tenant_id=fence.tenant_id, reason=SECRET)
    await world.rows(
        "INSERT INTO idempotency_keys (tenant_id, route, key, fingerprint, status, body)"
        " VALUES (%s, 'POST /v1/jobs', 'k', '\\x00', 201, %s) RETURNING 1",
        fence.tenant_id,
        SECRET.encode(),
    )


async def _texts(world: World, files: LakeFiles, scratch: Path) -> dict[str, str]:
    """Everything there is, as text: rows by table (bytes readable), files by name."""
    found = {}
    for (table,) in await world.rows(_TABLES):
        rows = await world.rows(f"SELECT to_jsonb(t)::text FROM {table} t ORDER BY 1")  # noqa: S608
        found[table] = "\n".join(text for (text,) in rows)
    found["journal"] += "\n".join(
        bytes(body).decode() for (body,) in await world.rows("SELECT body FROM journal")
    )
    for name in [file.name for file in files.list("")]:
        path = scratch / uuid.uuid4().hex
        files.fetch(name, path)
        data = path.read_bytes()
        found[name] = (
            str(pq.read_table(io.BytesIO(data)).to_pylist()) if name.endswith(".parquet") else data.decode()
        )
    return found


def _in_valkey(url: str, tenant: uuid.UUID) -> int:
    """Names of keys, members and fields that have its id, and values."""
    found = 0
    client: Any = redis.Redis.from_url(url)
    with client:
        for key in client.scan_iter():
            held: list[Any] = [key]
            match client.type(key):
                case b"zset":
                    held += client.zrange(key, 0, -1)
                case b"hash":
                    held += [part for pair in client.hgetall(key).items() for part in pair]
                case b"list":
                    held += client.lrange(key, 0, -1)
                case b"string":
                    held += [client.get(key)]
            found += sum(tenant.bytes in part for part in held)
    return found


def _of(tenant: uuid.UUID, texts: dict[str, str]) -> set[str]:
    ways = (str(tenant), tenant.hex, SECRET, SECRET.encode().hex())
    return {where for where, text in texts.items() if any(way in text for way in ways)}


async def test_nothing_of_a_tenant_is_left_and_all_of_its_neighbour(
    world: World,
    cell_database_url: str,
    queue: ValkeyQueue,
    valkey_url: str,
    files: LakeFiles,
    tmp_path: Path,
) -> None:
    old = OldDays(world, files, tmp_path)
    await _inhabit(world, world.a, old, queue)
    neighbours = [new_job(now())]
    await world.create(*neighbours, fence=world.b)
    await queue.add([member_of(neighbours[0], world.b.tenant_id)])
    await old.run(old.at(9, hours=7), tenant_id=world.b.tenant_id)
    await old.metered()
    await old.round(runs=5)
    tenant, erasure = world.a.tenant_id, uuid.uuid4()
    before = await _texts(world, files, tmp_path)
    assert {"jobs", "runs", "targets", "dlq", "journal", "tenants", "idempotency_keys"} <= _of(tenant, before)
    assert any(name.endswith(".parquet") for name in _of(tenant, before))
    assert _in_valkey(valkey_url, tenant)
    neighbour = await world.rows("SELECT t::text FROM jobs t WHERE tenant_id = %s", world.b.tenant_id)

    service = _service(world, cell_database_url, queue, files, page=3)
    # What was done is counted and shipped before anything goes.
    await world.rows("UPDATE cell SET metered_until = now() - interval '1 hour' RETURNING 1")
    waits = await service.erase(tenant, erasure)
    assert (waits["done"], waits["why"]) == (False, "waits until what was counted here is sealed and shipped")
    (refused,) = await world.store.create_jobs([world.a], [new_job(now())], host_id=world.host_id)
    assert isinstance(refused, NotOwner)
    await old.metered()
    await world.rows("UPDATE meter_minutes SET shipped_at = now() RETURNING 1")
    # The lake's writer is at it just now.
    assert await world.store.lake_take(host_id=world.host_id, seconds=60)
    waits = await service.erase(tenant, erasure)
    assert waits["why"] == "another process writes the history at the moment"
    await world.store.lake_leave(host_id=world.host_id)
    done = await service.erase(tenant, erasure)
    assert done["done"], done
    removed = done["removed"]
    assert isinstance(removed, dict)
    assert (removed["jobs"], removed["lake_rows"], removed["lake_files"]) == (7, 6, 2)
    assert removed["valkey"] >= 5

    after = await _texts(world, files, tmp_path)
    assert _of(tenant, after) == {"erased_tenants"}
    assert _in_valkey(valkey_url, tenant) == 0
    assert await world.rows("SELECT t::text FROM jobs t WHERE tenant_id = %s", world.b.tenant_id) == neighbour
    assert _in_valkey(valkey_url, world.b.tenant_id)
    # The neighbour's history can be read as before, and its files are what the store says they are.
    assert len((await old.reader.find_runs(world.b.tenant_id, RunFilter(), after=None, limit=9)).runs) == 1
    for day in await world.store.lake_calendar():
        assert day.rows == sum(file.rows for file in await world.store.lake_files(day.day))

    # For good: neither the control plane nor anybody else brings it back; asked again it says the same.
    told = TenantPlacement(
        tenant_id=tenant, state="ACTIVE", ownership_epoch=EPOCH + 9, config_version=99, config=TenantConfig()
    )
    assert not await world.store.put_tenant(told)
    assert await world.store.get_tenant(tenant) is None
    assert await world.store.is_erased(tenant)
    assert await service.erase(tenant, erasure) == done
    assert await service.erased() == [(tenant, True)]


async def test_a_name_that_somebody_else_chose_holds_up_no_erasure(
    world: World, cell_database_url: str, queue: ValkeyQueue
) -> None:
    tenant, erasure = world.a.tenant_id, uuid.uuid4()
    mine = [new_job(now()) for _ in range(5)]
    for job in mine:
        await world.create(job, fence=world.a)
        theirs = target(world.b.tenant_id, f"x-{tenant.hex}-{job.job_id.hex[-6:]}")
        await world.store.create_target(world.b, theirs, [], host_id=world.host_id)
    service = ErasureService(TransferStore(cell_database_url, cell_name="cell-1"), queue, None, page=2)
    await world.rows("UPDATE cell SET metered_until = now() + interval '1 hour' RETURNING 1")
    done = await service.erase(tenant, erasure)
    assert done["done"], done
    bodies = [bytes(body).decode() for (body,) in await world.rows("SELECT body FROM journal")]
    naming = [body for body in bodies if tenant.hex in body]
    assert len(naming) == len(mine), "as its own tenant wrote them"
    assert not any(f'["{tenant.hex}"' in body for body in naming)
    removed = done["removed"]
    assert isinstance(removed, dict)
    assert removed["journal"] >= len(mine)
