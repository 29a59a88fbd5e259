"""Leases of hosts, sharing of shards, tenants as announced."""

from __future__ import annotations

from dataclasses import replace

from cells.ports import TenantConfig, TenantPlacement
from cells.store.postgres import PostgresStore
from tests.component.cells.store.world import EPOCH, World, new_id, new_job, seconds_ago


async def test_a_lease_is_renewed_until_it_has_ended(world: World) -> None:
    host = await world.store.register_host(name="h", roles=["api"], lease_ms=60_000)
    renewed = await world.store.renew_host(host_id=host.host_id, lease_ms=30_000)
    assert renewed is not None
    assert (renewed.name, renewed.lease_ms) == ("h", 30_000)
    assert renewed.database_time > host.database_time
    await world.sql.execute(b"UPDATE hosts SET lease_expires_at = now() WHERE host_id = %s", [host.host_id])
    assert await world.store.renew_host(host_id=host.host_id, lease_ms=30_000) is None
    assert await world.store.renew_host(host_id=10_000, lease_ms=30_000) is None


async def test_a_retired_host_never_comes_back(world: World) -> None:
    await world.store.retire_host(host_id=world.host_id)
    assert await world.store.renew_host(host_id=world.host_id, lease_ms=30_000) is None
    assert await world.store.share_shards(host_id=world.host_id) == frozenset()


async def test_shards_are_shared_fairly_and_taken_over(world: World) -> None:
    store = world.store
    assert len(await store.share_shards(host_id=world.host_id)) == 256
    others = [
        (await store.register_host(name=f"d{i}", roles=["dispatcher"], lease_ms=60_000)).host_id
        for i in range(2)
    ]
    await store.register_host(name="e", roles=["executor"], lease_ms=60_000)
    held = {host: await store.share_shards(host_id=host) for host in (world.host_id, *others)}
    assert sorted(map(len, held.values())) == [85, 85, 86]
    assert frozenset().union(*held.values()) == frozenset(range(256))
    before = await world.rows("SELECT s, xmin::text FROM shard_leases s ORDER BY shard")
    assert await store.share_shards(host_id=others[0]) == held[others[0]]
    assert await world.rows("SELECT s, xmin::text FROM shard_leases s ORDER BY shard") == before
    await store.retire_host(host_id=world.host_id)
    held = {host: await store.share_shards(host_id=host) for host in others}
    assert [len(shards) for shards in held.values()] == [128, 128]
    assert await world.value("SELECT min(epoch) FROM shard_leases WHERE host_id = %s", others[1]) >= 1


async def test_only_long_lapsed_hosts_without_runs_are_buried(world: World) -> None:
    await world.claimed(new_job(seconds_ago(2)))
    idle = await world.store.register_host(name="idle", roles=[], lease_ms=60_000)
    live = await world.store.register_host(name="live", roles=[], lease_ms=60_000)
    await world.sql.execute(
        b"UPDATE hosts SET lease_expires_at = now() - interval '6 minutes' WHERE host_id <> %s",
        [live.host_id],
    )
    assert len(await world.store.reap(host_id=live.host_id, limit=1)) == 1
    states = dict(await world.rows("SELECT host_id, state FROM hosts"))
    assert states == {world.host_id: "GONE", idle.host_id: "GONE", live.host_id: "LIVE"}


async def test_an_older_announcement_never_overwrites_a_newer(store: PostgresStore) -> None:
    tenant = TenantPlacement(
        tenant_id=new_id(), state="ACTIVE", ownership_epoch=EPOCH, config_version=5, config=TenantConfig()
    )
    assert await store.put_tenant(tenant)
    assert not await store.put_tenant(tenant)
    assert not await store.put_tenant(replace(tenant, config_version=4, state="SUSPENDED"))
    assert not await store.put_tenant(replace(tenant, config_version=9, ownership_epoch=EPOCH - 1))
    assert await store.get_tenant(tenant.tenant_id) == tenant
    newer = replace(tenant, config_version=6, config=TenantConfig(pending_timers=7))
    assert await store.put_tenant(newer)
    assert await store.list_tenants() == [newer]
    assert await store.get_tenant(new_id()) is None
