"""A region dies, another takes its cell over, and the first one comes back. Real clusters and keepers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest

from cells.ports import Fence, Retryable
from controlplane.ownership.postgres import migrate as migrate_ownership
from controlplane.regions.deciding import Act
from controlplane.regions.wishes import Refused, give_up, override
from tests.component.cells.store.world import new_job, now
from tests.component.controlplane.regions.kept import TIMING, Kept, cell_store, three_regions
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

_TENANT = """INSERT INTO tenants (tenant_id, state, ownership_epoch, config_version, config, told_state)
VALUES (%s, 'ACTIVE', %s, 1, '{}', 'ACTIVE')"""


@pytest.fixture
def kept(empty_database_url: str, valkey_url: str) -> Iterator[Kept]:
    migrate_ownership(empty_database_url)
    with three_regions(empty_database_url, valkey_url) as kept:
        yield kept


async def test_a_region_dies_another_takes_over_and_the_first_one_comes_back(kept: Kept) -> None:
    a = kept["a"]
    # Nobody works before the first lease.
    async with cell_store(a) as store:
        await eventually(lambda: a.keeper.status.owns, timeout=60)
        host = await store.register_host(name="h1", roles=["api"], lease_ms=60_000)
        assert host.lease_ms <= (TIMING.lease - TIMING.stop) * 1000 + 1
        assert host.cell_epoch == a.keeper.status.epoch
    for region in "bc":
        kept[region].start()
    await eventually(lambda: kept.follow("a"), timeout=60)

    here, left = uuid.uuid4(), uuid.uuid4()
    owned = kept.store.claim_tenant(here, cell="cell", expected=None)
    gone = kept.store.claim_tenant(left, cell="elsewhere", expected=None)
    a.execute(_TENANT, here, owned.epoch)
    a.execute(_TENANT, left, gone.epoch)  # its move away had not reached anybody
    before = a.keeper.status.epoch
    for site in kept.values():
        await eventually(lambda site=site: site.execute("SELECT count(*) FROM tenants") == [(2,)])  # type: ignore[misc]

    # What it writes from here on nobody receives.
    for region in "bc":
        kept[region].die()
    alone = new_job(now() + timedelta(hours=1))
    async with cell_store(a) as store:
        host = await store.register_host(name="h3", roles=["api"], lease_ms=60_000)
        fence = Fence(tenant_id=here, epoch=owned.epoch)
        await store.create_jobs([fence], [alone], host_id=host.host_id)
    died = time.monotonic()
    a.die()
    for region in "bc":
        kept[region].start()
    owner = await eventually(kept.owner, timeout=60)
    assert time.monotonic() - died >= TIMING.lease - TIMING.renew
    region = owner.settings.region
    assert region in ("b", "c")
    assert kept.store.cell("cell").region == region  # type: ignore[union-attr]
    assert [one.region for one in kept.store.promotions("cell")] == ["a", region]

    # The cell acts under the new epoch; the tenants under epochs of their own.
    assert owner.execute("SELECT epoch > %s FROM cell", before) == [(True,)]
    acts = kept.store.tenant(here)
    assert acts is not None
    assert acts.epoch > owner.keeper.status.epoch > owned.epoch
    assert owner.execute("SELECT ownership_epoch, state FROM tenants WHERE tenant_id = %s", here) == [
        (acts.epoch, "ACTIVE")
    ]
    assert owner.execute("SELECT state FROM tenants WHERE tenant_id = %s", left) == [("MOVED",)]
    async with cell_store(owner) as store:
        await store.register_host(name="h2", roles=["api"], lease_ms=60_000)

    # The first one comes back as what it is now: read-only, whatever it believed.
    a.start()
    await eventually(a.answers, timeout=60)
    assert a.execute("SELECT pg_is_in_recovery()") == [(True,)]
    # What only it had is handed in, then it follows.
    await eventually(lambda: kept.follow(region), timeout=60)
    assert owner.execute("SELECT verb, thing FROM reconciliation WHERE kind = 'INTENT'") == [
        ("job.create", f"job:{alone.job_id.hex}")
    ]
    assert owner.execute("SELECT region, read_at IS NOT NULL, transactions FROM returns") == [("a", True, 1)]
    other = next(site for name, site in kept.items() if name not in ("a", region))
    await eventually(lambda: other.keeper.status.streaming, timeout=60)
    assert kept.owner() is owner


async def test_an_owner_whose_database_restarts_stays_the_owner(kept: Kept) -> None:
    a = kept["a"]
    async with cell_store(a):
        await eventually(lambda: a.keeper.status.owns, timeout=60)
    epoch = a.keeper.status.epoch
    a.keeper._folder.end_server()
    await eventually(lambda: a.answers() and a.keeper.status.act is Act.OWN, timeout=60)
    await eventually(lambda: a.keeper.status.owns, timeout=60)
    assert a.keeper.status.epoch == epoch
    assert a.execute("SELECT pg_is_in_recovery()") == [(False,)]


async def test_without_a_lease_no_process_of_the_cell_writes(kept: Kept) -> None:
    a = kept["a"]
    async with cell_store(a) as store:
        await eventually(lambda: a.keeper.status.owns, timeout=60)
        host = await store.register_host(name="h1", roles=["api"], lease_ms=60_000)
        a.execute("UPDATE cell SET epoch = epoch + 1, lease_until = clock_timestamp()")
        assert await store.renew_host(host_id=host.host_id, lease_ms=60_000) is None
        with pytest.raises(Retryable):
            await store.register_host(name="h2", roles=["api"], lease_ms=60_000)


async def test_a_missing_vote_is_waited_for_until_an_operator_gives_it_up(kept: Kept) -> None:
    a, b, c = kept["a"], kept["b"], kept["c"]
    async with cell_store(a):
        await eventually(lambda: a.keeper.status.owns, timeout=60)
    b.start()
    c.start()
    await eventually(lambda: kept.follow("a"), timeout=60)
    with pytest.raises(Refused, match="nobody takes cell over"):
        override(b.settings, kept.store, kept.store.cell("cell"), reason="impatience", waited=60)
    c.die()
    a.die()
    await eventually(lambda: "the votes of c are missing" in b.keeper.status.why, timeout=60)
    assert kept.owner() is None
    row = kept.store.cell("cell")
    with pytest.raises(Refused, match="the votes of c are waited for by b since 0 s"):
        override(b.settings, kept.store, row, reason="impatience", waited=0)
    assert "without c" in override(b.settings, kept.store, row, reason="c burnt down", waited=60)
    await eventually(lambda: kept.owner() is b, timeout=60)
    # What only c has may have been confirmed to somebody: STRICT waits for it.
    assert b.execute("SELECT region, lost, read_at FROM unread_sites") == [("c", "a", None)]
    with pytest.raises(Refused, match="it waits for c"):
        give_up(b.settings, kept.store.cell("cell"), site="a", reason="a mistake")
    # Both come back, and find out what they are.
    a.start()
    c.start()
    await eventually(lambda: kept.follow("b"), timeout=90)
    assert b.execute("SELECT read_at IS NOT NULL, settled_at FROM unread_sites") == [(True, None)]
    assert "wait any more" in give_up(
        b.settings, kept.store.cell("cell"), site="c", reason="nobody judges here"
    )
    assert b.execute("SELECT given_up FROM unread_sites") == [("nobody judges here",)]


async def test_a_standby_that_was_away_for_too_long_is_copied_anew(kept: Kept) -> None:
    a, b = kept["a"], kept["b"]
    async with cell_store(a):
        await eventually(lambda: a.keeper.status.owns, timeout=60)
    b.start()
    await eventually(lambda: b.keeper.status.streaming, timeout=60)
    b.die()
    in_use = "SELECT active FROM pg_replication_slots WHERE slot_name = 'site_b'"
    await eventually(lambda: a.execute(in_use) == [(False,)], timeout=30)
    # The log that it needs is gone, as it would be behind max_slot_wal_keep_size.
    a.execute("SELECT pg_drop_replication_slot('site_b')")
    for _ in range(8):
        a.execute("SELECT pg_logical_emit_message(true, 'test', ''), pg_switch_wal()")
    a.execute("CHECKPOINT")
    tenant = uuid.uuid4()
    a.execute(_TENANT, tenant, 1)
    b.start()
    # That it streams for a moment before it is refused says nothing: its copy does.
    there = "SELECT count(*) FROM tenants WHERE tenant_id = %s"
    await eventually(lambda: b.says(there, tenant) == [(1,)], timeout=120)
    await eventually(lambda: b.keeper.status.streaming, timeout=60)
