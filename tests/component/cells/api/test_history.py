"""Runs of days that are in the lake only, through the API."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cells.domain.ids import JOB, RunKey, decode
from cells.lake.folder import FolderFiles
from cells.lake.reader import LakeReader
from cells.lake.service import Kept, LakeService
from cells.lake.writer import Place
from cells.observability.metrics import Metrics
from cells.ports import Retryable
from tests.component.cells.api.harness import Cell

pytestmark = pytest.mark.asyncio(loop_scope="session")

TARGET = "tgt_email"


class Past:
    """A job with two old runs that are in the lake and one that is not."""

    def __init__(self, cell: Cell, folder: Path, database_url: str) -> None:
        self.cell, self.database_url = cell, database_url
        self.files = FolderFiles(folder)
        self.reader = LakeReader(cell.store, self.files, folder)
        self.old: list[str] = []

    async def make(self) -> str:
        await self.cell.api.target(target_id=TARGET)
        job = await self.cell.api.job(TARGET)
        (claimed,) = [await self.cell.api.ok("POST", f"/v1/jobs/{job['job_id']}:trigger", status=201)]
        parent = decode(JOB, job["job_id"])
        assert parent is not None
        async with await psycopg.AsyncConnection.connect(self.database_url) as sql:
            for days_ago in (41, 40):
                at = datetime.combine((datetime.now(UTC) - timedelta(days=days_ago)).date(), time(12), UTC)
                await sql.execute("SELECT ensure_day_partition('runs', %s, 'fillfactor=80')", [at.date()])
                await sql.execute(
                    "INSERT INTO runs (tenant_id, parent_id, scheduled_for, state, shard, priority, version,"
                    " epoch, attempt, due_at, started_at, finished_at, target_id)"
                    " VALUES (%s, %s, %s, 'SUCCEEDED', 1, 2, 1, 7, 1, %s, %s, %s, %s)",
                    [self.cell.api.tenant, parent, at, at, at, at, TARGET],
                )
                self.old.insert(0, str(RunKey(parent_id=parent, scheduled_for=at)))
        service = LakeService(
            self.cell.store,
            self.files,
            Place(region="local", cell="local-shared-1"),
            Metrics(),
            host_id=lambda: self.cell.host.host_id,
            kept=Kept(),
        )
        for _ in range(2):
            await service.round(asyncio.Event())
            async with await psycopg.AsyncConnection.connect(self.database_url) as sql:
                await sql.execute("UPDATE cell SET metered_until = now() + interval '5 minutes'")
        for run_id in self.old:
            await self.cell.api.problem("GET", f"/v1/runs/{run_id}", status=404, code="NOT_FOUND")
        self.cell.api.app.state.services.history = self.reader
        self.old.insert(0, claimed["run_id"])
        return str(job["job_id"])


@pytest.fixture
def past(own: Cell, tmp_path: Path, cell_database_url: str) -> Past:
    return Past(own, tmp_path, cell_database_url)


async def test_lists_runs_and_ledger_go_back_beyond_the_store(past: Past) -> None:
    job_id = await past.make()
    api = past.cell.api
    assert [run["run_id"] for run in (await api.get("/v1/runs"))["items"]] == past.old
    read = await api.get(f"/v1/runs/{past.old[1]}")
    assert (read["run_id"], read["state"], read["target_id"]) == (past.old[1], "SUCCEEDED", TARGET)
    ledger = await api.get(f"/v1/jobs/{job_id}/occurrences?count=0")
    assert [item["verdict"] for item in ledger["past"]] == ["waiting", "ran", "ran"]
    await api.problem("POST", f"/v1/runs/{past.old[1]}:cancel", status=409, code="CONFLICT")


async def test_pages_cross_from_the_store_to_the_lake(past: Past) -> None:
    await past.make()
    seen: list[str] = []
    path = "/v1/runs?limit=1"
    while True:
        page = await past.cell.api.get(path)
        seen.extend(run["run_id"] for run in page["items"])
        if page["next_cursor"] is None:
            break
        path = f"/v1/runs?limit=1&cursor={page['next_cursor']}"
    assert seen == past.old


async def test_a_search_whose_time_is_up_says_where_to_go_on(past: Past) -> None:
    await past.make()
    past.reader._patience = 0.0
    first = await past.cell.api.get("/v1/runs")
    assert [run["run_id"] for run in first["items"]] == past.old[:1]
    past.reader._patience = 5.0
    second = await past.cell.api.get(f"/v1/runs?cursor={first['next_cursor']}")
    assert [run["run_id"] for run in second["items"]] == past.old[1:]
    assert second["next_cursor"] is None


async def test_nobody_elses_history_is_shown(past: Past) -> None:
    await past.make()
    other = past.cell.for_tenant()
    await other.place(other.api.tenant)
    assert (await other.api.get("/v1/runs"))["items"] == []
    for run_id in past.old:
        await other.api.problem("GET", f"/v1/runs/{run_id}", status=404, code="NOT_FOUND")


async def test_a_lake_that_is_away_is_told(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    await past.make()

    async def away(*_: Any, **__: Any) -> Any:
        raise Retryable("the lake's folder: gone")

    monkeypatch.setattr(past.reader._cache, "paths", away)
    await past.cell.api.problem("GET", f"/v1/runs/{past.old[1]}", status=503, code="UNAVAILABLE")
    assert (await past.cell.api.get(f"/v1/runs/{past.old[0]}"))["run_id"] == past.old[0]
