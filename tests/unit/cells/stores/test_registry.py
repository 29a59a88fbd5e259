"""Which stores a cell has, and what each of them may use of a tenant's quotas."""

from __future__ import annotations

import pytest

from cells.config import Settings, SettingsError
from cells.ports import TenantConfig
from cells.stores.ports import share_of
from cells.stores.registry import LocalStore, Registry, parse_stores

EAST = LocalStore(number=1, region="east", url="http://127.0.0.1:1")
WEST = LocalStore(number=2, region="west", url="http://127.0.0.1:2")
TOLD = (
    '[{"number": 2, "region": "west", "url": "http://127.0.0.1:2"},'
    ' {"number": 1, "region": "east", "url": "http://127.0.0.1:1"}]'
)


def test_what_stays_in_a_region_is_kept_in_its_store_or_where_the_cell_began() -> None:
    registry = Registry(local=parse_stores(TOLD))
    assert list(registry) == [EAST, WEST]
    assert (registry.home("west"), registry.home("south"), registry.home("")) == (WEST, EAST, EAST)
    assert (registry.get(2), registry.get(0), registry.get(3)) == (WEST, None, None)
    assert Registry().home("east") is None
    assert not Registry(own=1)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{}", "JSON list"),
        ('[{"number": 0, "region": "east", "url": "http://x"}]', "1 to 255"),
        ('[{"number": 256, "region": "east", "url": "http://x"}]', "1 to 255"),
        ('[{"number": 1, "region": "ea st", "url": "http://x"}]', "no region"),
        ('[{"number": 1, "region": "east", "url": "ftp://x"}]', "http"),
        (TOLD.replace('"number": 2', '"number": 1'), "same number"),
        (TOLD.replace("west", "east"), "same region"),
    ],
)
def test_faults_of_a_list_of_stores_are_said(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_stores(text)


def test_a_store_of_one_region_is_neither_leased_nor_has_others() -> None:
    env = {
        "CELL_NAME": "c-1", "CELL_REGION": "east", "CELL_BIND": "127.0.0.1:1",
        "CELL_DATABASE_URL": "postgresql://x/y", "CELL_VALKEY_URL": "redis://x/0",
        "CELL_KEYS": f"c-1:{'ab' * 32}", "CELL_INSTALLATION_KEY": "cd" * 32, "CELL_STORE": "1",
    }  # fmt: skip
    assert Settings.from_env(env).stores == Registry(own=1)
    for more in ({"CELL_OWNERSHIP": "LEASED"}, {"CELL_STORES": TOLD}):
        with pytest.raises(SettingsError, match="CELL_STORE is of a store of one region"):
            Settings.from_env(env | more)


def test_a_local_store_has_a_quarter_of_each_quota() -> None:
    share = share_of(TenantConfig(job_runs_per_second=100, pending_timers=3, strict_jobs_per_second=0))
    assert (share.job_runs_per_second, share.pending_timers, share.strict_jobs_per_second) == (25, 1, 0)
    assert share.default_window_seconds == TenantConfig().default_window_seconds
