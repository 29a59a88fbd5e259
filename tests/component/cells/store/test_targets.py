"""Targets and their secrets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cells.domain.job import JobState
from cells.ports import Conflict, NotOwner, Terminal
from tests.component.cells.store.world import TARGET, World, new_job, seconds_ago, secret, target


async def test_a_target_is_changed_under_its_version(world: World) -> None:
    store, a = world.store, world.a
    row = await store.get_target(a.tenant_id, TARGET)
    assert row is not None
    assert (row.state, row.version, row.auth) == ("APPROVED", 1, {"type": "HMAC_SHA256"})
    changed = await store.update_target(
        a, replace(row, state="DISABLED"), base_version=1, host_id=world.host_id
    )
    assert (changed.state, changed.version) == ("DISABLED", 2)
    with pytest.raises(Conflict) as lost:
        await store.update_target(a, row, base_version=1, host_id=world.host_id)
    assert lost.value.version == 2
    with pytest.raises(Terminal):
        await store.update_target(
            a, replace(row, target_id="tgt_none"), base_version=1, host_id=world.host_id
        )
    with pytest.raises(Conflict):
        await store.create_target(a, target(a.tenant_id), [], host_id=world.host_id)


async def test_a_target_in_use_cannot_be_deleted(world: World) -> None:
    store = world.store
    job = new_job(seconds_ago(-60))
    await world.create(job)
    with pytest.raises(Conflict):
        await store.delete_target(world.a, TARGET, host_id=world.host_id)
    await world.set_state(job, JobState.CANCELLED)
    await store.delete_target(world.a, TARGET, host_id=world.host_id)
    assert await store.get_target(world.a.tenant_id, TARGET) is None
    assert await store.target_secrets(world.a.tenant_id, TARGET) == []
    assert len(await store.target_secrets(world.b.tenant_id, TARGET)) == 1
    with pytest.raises(Terminal):
        await store.delete_target(world.a, TARGET, host_id=world.host_id)


async def test_a_rotated_secret_lives_on_for_the_overlap(world: World) -> None:
    store, tenant = world.store, world.a.tenant_id
    row = await store.rotate_secret(world.a, TARGET, secret(), overlap_seconds=60, host_id=world.host_id)
    assert row.version == 2
    new, old = await store.target_secrets(tenant, TARGET)
    assert (new.generation, new.expires_at, old.generation) == (2, None, 1)
    assert old.expires_at is not None
    await store.rotate_secret(world.a, TARGET, secret(), overlap_seconds=0, host_id=world.host_id)
    assert [s.generation for s in await store.target_secrets(tenant, TARGET)] == [3]
    other = secret(purpose="CREDENTIAL")
    await store.rotate_secret(world.a, TARGET, other, overlap_seconds=0, host_id=world.host_id)
    live = await store.target_secrets(tenant, TARGET)
    assert [(s.generation, s.purpose) for s in live] == [(3, "SIGNING"), (1, "CREDENTIAL")]


async def test_targets_are_read_for_calling_in_one_go(world: World) -> None:
    a, b = world.a.tenant_id, world.b.tenant_id
    found = await world.store.call_targets([(a, TARGET), (a, "tgt_none"), (b, TARGET)])
    assert [(row.tenant_id, len(secrets)) for row, secrets in found] == [(a, 1), (b, 1)]
    assert await world.store.call_targets([]) == []


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://reports.example", "tgt_reports"),
        ("https://reports.example/x", "tgt_reports"),
        ("https://reports.example?x=1", "tgt_reports"),
        ("https://reports.example/v2/run", "tgt_v2"),
        ("https://reports.example/v2", "tgt_v2"),
        ("https://reports.example/v20", "tgt_reports"),
        ("https://reports.example.evil.example/", None),
        ("https://pending.example/x", None),
    ],
)
async def test_a_url_belongs_to_the_longest_base_it_lies_under(
    world: World, url: str, found: str | None
) -> None:
    tenant = world.a.tenant_id
    for row in (
        target(tenant, "tgt_v2", base_url="https://reports.example/v2"),
        target(tenant, "tgt_pending", base_url="https://pending.example", state="PENDING"),
    ):
        await world.store.create_target(world.a, row, [], host_id=world.host_id)
    row_ = await world.store.find_target_by_url(tenant, url)
    assert (None if row_ is None else row_.target_id) == found


async def test_targets_are_listed_by_page(world: World) -> None:
    tenant = world.a.tenant_id
    for i in range(3):
        row = target(tenant, f"tgt_{i}", state="PENDING")
        await world.store.create_target(world.a, row, [], host_id=world.host_id)
    first = await world.store.list_targets(tenant, state=None, after=None, limit=2)
    rest = await world.store.list_targets(tenant, state=None, after=first[-1].target_id, limit=9)
    assert [row.target_id for row in (*first, *rest)] == ["tgt_0", "tgt_1", "tgt_2", TARGET]
    pending = await world.store.list_targets(tenant, state="PENDING", after=None, limit=9)
    assert len(pending) == 3


async def test_a_broken_fence_writes_no_target(world: World) -> None:
    await world.put_tenant(world.a, "SEALED", version=2)
    row = target(world.a.tenant_id)
    before = await world.everything()
    for write in (
        world.store.create_target(world.a, target(world.a.tenant_id, "tgt_x"), [], host_id=world.host_id),
        world.store.update_target(world.a, row, base_version=1, host_id=world.host_id),
        world.store.delete_target(world.a, TARGET, host_id=world.host_id),
        world.store.rotate_secret(world.a, TARGET, secret(), overlap_seconds=0, host_id=world.host_id),
    ):
        with pytest.raises(NotOwner):
            await write
    assert await world.everything() == before
