"""meters-taken-over: the region that owns a cell is killed (-9) in mid-minute amid its jobs and workflows,
and another one goes on with them: the ledger's sums are the new owner's records, exactly, and nothing was
refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from tests.proofs import region_loss
from tests.recorder import Recorder
from tests.regional import RegionalStack
from tests.waiting import eventually_sync

CELL = region_loss.CELL
JOBS, WORKFLOWS = 300, 20
STEPS = ("one", "two", "three")
#: A minute, what is open in it, and the pauses of a shipper that found nobody.
SHIPPED_SECONDS = 240
#: It is killed so far into a minute that some of it was counted by each owner (seconds).
_MIDST = range(15, 40)
#: By metric, what the cell's records say.
_RECORDED = {
    "job_runs": "SELECT count(*) FROM runs WHERE kind = 0 AND finished_at IS NOT NULL AND state <> 'SKIPPED'"
    " AND ordinal >= 0",
    "run_attempts": "SELECT coalesce(sum(jsonb_array_length(attempts)), 0) FROM runs",
    "workflow_steps": "SELECT count(*) FROM workflow_events WHERE type = 'ACTIVITY_COMPLETED'",
}


def main(jobs: int = JOBS, workflows: int = WORKFLOWS) -> dict[str, Any]:
    environment = {"CLOCKHOUSE_CELLS": CELL, "CLOCKHOUSE_DEMO_JOBS": "0"}
    with Recorder(delay_seconds=0.05) as target, RegionalStack(environment=environment) as stack:
        return take_over(stack, target, jobs=jobs, workflows=workflows)


def take_over(stack: RegionalStack, target: Recorder, *, jobs: int, workflows: int) -> dict[str, Any]:
    first = eventually_sync(lambda: stack.owner(CELL), timeout=60)
    others = [region for region in stack.regions if region != first]
    api = stack.api_in(others[0])
    expected = region_loss.create(stack, others[0], target, jobs=jobs)
    target_id = api.register_target(target.url)["target_id"]
    steps = [{"id": name, "activity": {"target_id": target_id, "path": f"/{name}"}} for name in STEPS]
    api.call("PUT", "/v1/workflow-definitions/meters/versions/1", {"steps": steps})

    def flow(n: int) -> None:
        begin = {"workflow_id": f"meters-{n}", "definition": "meters"}
        eventually_sync(lambda: api.http.post("/v1/workflows", json=begin).is_success, timeout=120)

    eventually_sync(lambda: len(target.calls) >= jobs // 10, timeout=120)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(flow, range(workflows // 2)))
        eventually_sync(lambda: datetime.now(UTC).second in _MIDST, timeout=70)
        lost_at = datetime.now(UTC)
        stack.region_dies(first)
        owner = eventually_sync(lambda: stack.owner(CELL), timeout=120)
        list(pool.map(flow, range(workflows // 2, workflows)))
    eventually_sync(lambda: expected <= set(target.keys()), timeout=240)
    eventually_sync(lambda: _recorded(stack, owner)["workflow_steps"] == workflows * len(STEPS), timeout=120)
    eventually_sync(lambda: _recorded(stack, owner)["job_runs"] == jobs, timeout=120)
    wanted = _recorded(stack, owner)
    with suppress(AssertionError):  # what it is instead is told
        eventually_sync(lambda: _ledger(stack) == wanted, timeout=SHIPPED_SECONDS)
    ledger = _ledger(stack)
    minute = lost_at.replace(second=0, microsecond=0)
    writers = _writers(stack, minute)
    refused = _refused(stack, owner)
    return {
        "holds": ledger == wanted and len({epoch for epoch, _ in _writers(stack)}) > 1 and refused == 0,
        "ledger": ledger,
        "recorded": wanted,
        "called_twice": sum(1 for count in target.keys().values() if count > 1),
        "epochs": sorted({epoch for epoch, _ in _writers(stack)}),
        "writers_in_that_minute": len(writers),
        "refused": refused,
        "from": first,
        "to": owner,
    }


def _recorded(stack: RegionalStack, region: str) -> dict[str, int]:
    with psycopg.connect(stack.site(CELL, region)["database_url"]) as connection:
        return {metric: int(_one(connection, text)) for metric, text in _RECORDED.items()}


def _one(connection: psycopg.Connection[Any], text: str) -> Any:
    row = connection.execute(text).fetchone()  # type: ignore[call-overload]
    return None if row is None else row[0]


def _ledger(stack: RegionalStack) -> dict[str, int]:
    with psycopg.connect(stack.info["control_database_url"], autocommit=True) as connection:
        rows = connection.execute(
            "SELECT metric, sum(quantity)::bigint FROM billing_meter_record WHERE metric = ANY(%s)"
            " GROUP BY metric",
            [list(_RECORDED)],
        ).fetchall()
    return dict.fromkeys(_RECORDED, 0) | {metric: int(quantity) for metric, quantity in rows}


def _writers(stack: RegionalStack, since: datetime | None = None) -> set[tuple[int, str]]:
    """Epochs and incarnations that counted attempts; those of one minute."""
    begin = since or datetime(2000, 1, 1, tzinfo=UTC)
    until = datetime(2200, 1, 1, tzinfo=UTC) if since is None else since + timedelta(minutes=1)
    with psycopg.connect(stack.info["control_database_url"], autocommit=True) as connection:
        return set(
            connection.execute(
                "SELECT DISTINCT epoch, host FROM billing_meter_record"
                " WHERE metric = 'run_attempts' AND minute >= %s AND minute < %s",
                [begin, until],
            ).fetchall()
        )


def _refused(stack: RegionalStack, region: str) -> int:
    with psycopg.connect(stack.site(CELL, region)["database_url"]) as connection:
        return int(_one(connection, "SELECT count(*) FROM meter_minutes WHERE refused IS NOT NULL"))
