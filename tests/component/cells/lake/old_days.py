"""Days of runs that lie back, and a lake that looks after them."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from cells.domain.ids import RunKey
from cells.lake.files import LakeFiles
from cells.lake.parquet import day_prefix
from cells.lake.reader import LakeReader
from cells.lake.service import Kept, LakeService
from cells.lake.writer import Place
from cells.observability.metrics import Metrics
from cells.ports import FoundRuns, RunFilter
from tests.component.cells.store.world import World, new_id

PLACE = Place(region="eu-1", cell="cell-1")
HOUR = timedelta(hours=1)


class OldDays:
    """A world with a past."""

    def __init__(self, world: World, files: LakeFiles, scratch: Path) -> None:
        self.world, self.files, self.scratch = world, files, scratch
        self.metrics = Metrics()
        self.reader = LakeReader(world.store, files, scratch)

    def day(self, days_ago: int) -> date:
        return (datetime.now(UTC) - timedelta(days=days_ago)).date()

    def at(self, days_ago: int, **more: int) -> datetime:
        return datetime.combine(self.day(days_ago), time(), UTC) + timedelta(**more)

    async def partition(self, days_ago: int) -> str:
        day = self.day(days_ago)
        await self.world.rows(
            "SELECT ensure_day_partition('runs', %s, 'fillfactor=80, autovacuum_enabled=false')", day
        )
        return f"runs_{day:%Y%m%d}"

    async def run(self, at: datetime, state: str = "SUCCEEDED", **changes: Any) -> RunKey:
        """A run as it would stand in the store."""
        ended = at + HOUR / 60 if state not in ("DUE", "RETRY_WAIT", "RUNNING", "READY") else None
        attempt = {
            "number": 1,
            "epoch": 7,
            "outcome": "SUCCEEDED",
            "claimed_at": "x",
            "finished_at": "y",
            "body": "said",
        }
        values: dict[str, Any] = {
            "tenant_id": self.world.a.tenant_id,
            "parent_id": new_id(),
            "scheduled_for": at,
            "ordinal": 0,
            "state": state,
            "shard": 1,
            "priority": 2,
            "version": 1,
            "epoch": 7,
            "attempt": 1,
            "timer_at": at + 1000 * HOUR * 24 if state in ("DUE", "RETRY_WAIT") else None,
            "lease_expires_at": at + 1000 * HOUR * 24 if state == "RUNNING" else None,
            "due_at": at,
            "started_at": at,
            "finished_at": ended,
            "target_id": "tgt_reports",
            "http_status": 200,
            "attempts": json.dumps([attempt]),
        } | changes
        columns = ", ".join(values)
        await self.world.rows(
            f"INSERT INTO runs ({columns}) VALUES ({', '.join(['%s'] * len(values))}) RETURNING 1",  # noqa: S608
            *values.values(),
        )
        return RunKey(parent_id=values["parent_id"], scheduled_for=at, ordinal=values["ordinal"])

    async def end(self, key: RunKey, state: str = "SUCCEEDED", *, ended: datetime | None = None) -> None:
        await self.world.rows(
            "UPDATE runs SET state = %s, timer_at = NULL, lease_expires_at = NULL, finished_at = %s,"
            " epoch = epoch + 1 WHERE parent_id = %s RETURNING 1",
            *(state, ended or datetime.now(UTC), key.parent_id),
        )

    async def metered(self) -> None:
        """All that has happened so far is counted."""
        await self.world.rows("UPDATE cell SET metered_until = now() + interval '5 minutes' RETURNING 1")

    def service(self, *, store: Any = None, **kept: int) -> LakeService:
        return LakeService(
            store or self.world.store,
            self.files,
            PLACE,
            self.metrics,
            host_id=lambda: self.world.host_id,
            kept=Kept(**kept),
            page=2,
        )

    async def round(self, **changes: Any) -> None:
        await self.service(**changes).round(asyncio.Event())

    async def out(self, **changes: Any) -> None:
        """As many rounds as an old day needs: written, watched, metered, dropped."""
        await self.round(**changes)
        await self.metered()
        await self.round(**changes)

    def names(self, days_ago: int) -> list[str]:
        """Files of a day, without its manifest."""
        return [name for name in self.everything(days_ago) if name.endswith(".parquet")]

    def everything(self, days_ago: int) -> list[str]:
        prefix = day_prefix(region=PLACE.region, cell=PLACE.cell, day=self.day(days_ago))
        return [file.name for file in self.files.list(prefix)]

    def table(self, days_ago: int) -> list[dict[str, Any]]:
        """What a reader of the files would find, in the order of the files."""
        rows: list[dict[str, Any]] = []
        for name in self.names(days_ago):
            copy = self.scratch / uuid.uuid4().hex
            self.files.fetch(name, copy)
            rows.extend(pq.read_table(copy).to_pylist())
        return rows

    def manifest(self, days_ago: int) -> dict[str, Any]:
        copy = self.scratch / uuid.uuid4().hex
        self.files.fetch(
            day_prefix(region=PLACE.region, cell=PLACE.cell, day=self.day(days_ago)) + "manifest.json", copy
        )
        found: dict[str, Any] = json.loads(copy.read_text())
        return found

    async def exists(self, table: str) -> bool:
        return bool(await self.world.value("SELECT to_regclass(%s) IS NOT NULL", table))

    async def found(self, **where: Any) -> FoundRuns:
        """What tenant a finds in the lake."""
        more = {name: where.pop(name) for name in ("after", "limit") if name in where}
        return await self.reader.find_runs(
            self.world.a.tenant_id, RunFilter(**where), **({"after": None, "limit": 50} | more)
        )

    async def keys(self, **where: Any) -> list[RunKey]:
        found = await self.found(**where)
        assert found.reached is None
        return [row.key for row in found.runs]

    def counted(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0
