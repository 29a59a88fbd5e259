"""What the control plane asks after a rehearsal."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from cells.contract import Scope
from cells.domain import ids
from tests.component.cells.api.harness import Api, Cell

pytestmark = pytest.mark.asyncio(loop_scope="session")

_AT = datetime(2026, 5, 5, 12, 0, tzinfo=UTC)
_EPOCH = 9
_RUN = """INSERT INTO runs (tenant_id, parent_id, scheduled_for, state, shard, priority, version, epoch,
                            due_at, started_at, finished_at, attempts)
VALUES (%s, %s, %s, %s, 0, 1, 1, %s, %s, %s, %s, %s)"""


async def test_late_lost_and_refused_runs_are_counted(running: Cell, shared_database_url: str) -> None:
    tenant, job = running.api.tenant, uuid.uuid4()
    lost = {"number": 1, "epoch": 8 << 20, "outcome": "LOST", "claimed_at": "2026-05-05T12:00:02.000Z",
            "started_at": "2026-05-05T12:00:02.000Z", "finished_at": "2026-05-05T12:00:30.000Z"}  # fmt: skip
    never_sent = lost | {"sent": False, "started_at": None}
    with psycopg.connect(shared_database_url, autocommit=True) as sql:
        for second, late, attempts, state, number in (
            (0, 0.5, [], "SUCCEEDED", 8 << 20),
            (2, 28, [lost], "SUCCEEDED", 9 << 20),
            (3, 29, [never_sent], "SUCCEEDED", 9 << 20),
            (4, None, [], "CANCELLED", 9 << 20),
            (600, 0, [], "SUCCEEDED", 9 << 20),  # behind the span
        ):
            due = _AT + timedelta(seconds=second)
            began = None if late is None else due + timedelta(seconds=late)
            sql.execute(_RUN, [tenant, job, due, state, number, due, began, due, json.dumps(attempts)])
    control = Api(
        running.api.app, running.api.http, running.clock, tenant,
        scopes=(Scope.INTERNAL.value,), actor="service:control-plane",
    )  # fmt: skip
    span = f"since=2026-05-05T12:00:00Z&until=2026-05-05T12:05:00Z&epoch={_EPOCH}"
    told = await control.get(f"/internal/punctuality?{span}")
    assert (told["due"], told["began"], told["once"]) == (3, 3, 2)
    assert told["late_p50_ms"] == 500
    assert told["late_max_ms"] == 29_000
    assert (told["refused"], told["repeated"]) == (2, 1)
    assert told["first_began_at"] == "2026-05-05T12:00:30Z"
    assert told["repeats"] == [
        {
            "tenant_id": ids.encode(ids.TENANT, tenant),
            "run_id": f"{ids.encode(ids.JOB, job)}:2026-05-05T12:00:02Z",
            "state": "SUCCEEDED",
            "lost": 1,
        }
    ]
    refused = await control.get(
        "/internal/punctuality?since=2026-05-05T12:00:00Z&until=2026-05-06T12:00:00Z&epoch=1", status=422
    )
    assert refused["errors"][0]["parameter"] == "until"
