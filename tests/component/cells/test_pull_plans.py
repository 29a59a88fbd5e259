"""The plans of what workers say. On a database of its own: what an ANALYZE leaves changes others' plans."""

from __future__ import annotations

import re

import psycopg
import pytest

from cells.store.postgres import PostgresStore
from cells.store.queries import QUERIES

pytestmark = pytest.mark.asyncio

#: Found by the keys of runs; with the version of each.
_BY_KEYS = ("pull_heartbeat", "pull_give_back", "complete_runs", "pull_take", "pull_runs", "claim_lock_runs",
            "claim_unlocked_runs", "concurrency_wake_runs")  # fmt: skip
_WITH_VERSIONS = ("pull_lock", "pull_runs", "claim_lock_runs")


def _numbered(name: str) -> bytes:
    """The statement with its parameters as PostgreSQL numbers them."""
    numbers: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${numbers.setdefault(found[1], len(numbers) + 1)}"

    return re.sub(r"%\((\w+)\)s", number, QUERIES[name].decode()).encode()


async def test_claims_are_found_by_their_keys_whatever_was_analyzed(cell_database_url: str) -> None:
    """An index of what is under way looks empty to an ANALYZE that comes when nothing is; a plan that walks
    it for each claim of a batch would be kept."""
    with psycopg.connect(cell_database_url, autocommit=True) as sql:
        sql.execute(
            "INSERT INTO runs (tenant_id, parent_id, scheduled_for, state, shard, priority, version, due_at,"
            " task_queue) SELECT gen_random_uuid(), gen_random_uuid(), now(), 'READY', 0, 2, 1, now(), 'q'"
            " FROM generate_series(1, 1000)"
        )
        sql.execute("VACUUM (ANALYZE) runs")
    async with PostgresStore(cell_database_url, cell_name="cell-1", pool_size=2) as store:
        plans: dict[str, list[str]] = {}
        for name in {*_BY_KEYS, *_WITH_VERSIONS}:
            async with store._database.transaction() as connection:
                cursor = await connection.execute(b"EXPLAIN (GENERIC_PLAN) " + _numbered(name), prepare=False)
                plans[name] = [line for (line,) in await cursor.fetchall()]
    for name in _BY_KEYS:
        used = {m[1] for line in plans[name] if (m := re.search(r"Scan using (runs_\w+) on runs", line))}
        assert used, name
        assert not {i for i in used if not i.endswith(("_pkey", "_ordinal_idx"))}, name
    for name in _WITH_VERSIONS:
        found = plans[name].index(next(line for line in plans[name] if "job_versions" in line))
        assert "(version = " in plans[name][found + 1], name
