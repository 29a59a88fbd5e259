"""A process of a cell that is owned under a lease works while its region owns the cell, and no longer."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from cells.contract import STANDBY_HEADER, Caller, sign_request
from cells.ownership.cell_row import CellRow, RowAway, RowSuperseded
from cells.ports import LeaseLost, Terminal
from cells.records import Unconfirmed
from cells.store.postgres import PostgresStore
from tests.component.cells.host_process import HostProcess, host_process
from tests.waiting import eventually_sync


def _ask(host: HostProcess) -> httpx.Response:
    signed = sign_request(
        kid="test",
        secret=bytes.fromhex("ab" * 32),
        now_ms=time.time_ns() // 1_000_000,
        method="GET",
        target="/internal/tenants",
        caller=Caller(actor="service:control-plane", scopes=("internal",)),
    )
    return httpx.get(f"{host.url}/internal/tenants", headers=signed, timeout=10)


def test_a_process_works_only_under_its_cells_lease(
    empty_database_url: str, valkey_url: str, tmp_path: Path
) -> None:
    row = CellRow(empty_database_url)
    with pytest.raises(RowAway):
        row.probe()  # nobody has set the database up
    with host_process(
        tmp_path, database_url=empty_database_url, valkey_url=valkey_url, wait=False, CELL_OWNERSHIP="LEASED"
    ) as host:

        def probed() -> bool:
            try:
                return row.probe().epoch == 1
            except RowAway:
                return False

        eventually_sync(probed, timeout=30)
        assert not host.ready()
        refused = eventually_sync(lambda: (answer := _ask(host)).status_code == 421 and answer, timeout=10)
        assert STANDBY_HEADER in refused.headers

        until = row.extend(row.probe(), epoch=7, seconds=60)
        eventually_sync(host.ready, timeout=30)
        assert _ask(host).status_code == 200
        # An older owner's lease, and one that would end earlier, take nothing back.
        with pytest.raises(RowSuperseded):
            row.extend(row.probe(), epoch=6, seconds=600)
        assert row.extend(row.probe(), epoch=7, seconds=1) == until

        # Another owner: what this process knows may be of before that.
        row.extend(row.probe(), epoch=8, seconds=60)
        assert eventually_sync(lambda: host.process.poll() is not None, timeout=30)
        assert host.process.returncode == 0
        assert "begins anew" in host.logs()


async def test_a_database_is_leased_or_not_for_good(empty_database_url: str, cell_database_url: str) -> None:
    from cells.store.migrate import migrate

    migrate(empty_database_url)
    async with PostgresStore(empty_database_url, cell_name="x", leased=True):
        pass
    with pytest.raises(Terminal, match="CELL_OWNERSHIP=LEASED is missing"):
        await PostgresStore(empty_database_url, cell_name="x").open()
    async with PostgresStore(cell_database_url, cell_name="x"):
        pass
    with pytest.raises(Terminal, match="CELL_OWNERSHIP=LEASED is wrong"):
        await PostgresStore(cell_database_url, cell_name="x", leased=True).open()


async def test_a_hosts_lease_ends_with_its_cells(empty_database_url: str) -> None:
    from cells.store.migrate import migrate

    migrate(empty_database_url)
    row = CellRow(empty_database_url)
    async with PostgresStore(empty_database_url, cell_name="x", leased=True) as store:
        probe = row.probe()
        until = row.extend(probe, epoch=3, seconds=5)
        host = await store.register_host(name="h", roles=["api"], lease_ms=60_000)
        assert host.cell_epoch == 3
        assert host.lease_ms <= 5_000
        assert host.database_time + timedelta(milliseconds=host.lease_ms - 1) <= until
        row.extend(row.probe(), epoch=3, seconds=600)
        renewed = await store.renew_host(host_id=host.host_id, lease_ms=60_000)
        assert renewed is not None
        assert renewed.lease_ms == 60_000


async def test_nothing_is_confirmed_where_no_other_region_is_waited_for(empty_database_url: str) -> None:
    from cells.store.migrate import migrate

    migrate(empty_database_url)
    row = CellRow(empty_database_url)
    async with PostgresStore(empty_database_url, cell_name="x", leased=True) as store:
        with pytest.raises(LeaseLost):
            await store.confirm()
        row.extend(row.probe(), epoch=3, seconds=60)
        with pytest.raises(Unconfirmed, match="no other region"):
            await store.confirm()
