"""What the control plane asks about usage: runs that ended, by day and by job."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta

import psycopg
import pytest

from cells.contract import Scope
from cells.domain import ids
from tests.component.cells.api.harness import Api, Cell

pytestmark = pytest.mark.asyncio(loop_scope="session")

DAY = date(2026, 3, 14)
JOBS = [uuid.UUID(int=n << 64) for n in (1, 2, 3)]


@pytest.fixture
def control(running: Cell, shared_database_url: str) -> Api:
    """The control plane, and a tenant with three jobs: two runs of the first day, one of each after."""
    with psycopg.connect(shared_database_url, autocommit=True) as sql:
        for job, day, policy, runs in (
            (JOBS[0], DAY, "HOME_ASYNC", 2),
            (JOBS[1], DAY, "STRICT", 1),
            (JOBS[0], DAY + timedelta(days=1), "HOME_ASYNC", 1),
            (JOBS[2], DAY + timedelta(days=1), "HOME_ASYNC", 5),
        ):
            sql.execute(
                "INSERT INTO job_usage (tenant_id, day, job_id, region_policy, runs)"
                " VALUES (%s, %s, %s, %s, %s)",
                [running.api.tenant, day, job, policy, runs],
            )
    return Api(
        running.api.app,
        running.api.http,
        running.clock,
        running.api.tenant,
        scopes=(Scope.INTERNAL.value,),
        actor="service:control-plane",
    )


async def test_a_day(running: Cell, control: Api) -> None:
    told = await control.get(f"/internal/usage/{DAY}")
    tenant = ids.encode(ids.TENANT, running.api.tenant)
    assert [item for item in told["items"] if item["tenant_id"] == tenant] == [
        {"tenant_id": tenant, "region_policy": "HOME_ASYNC", "job_runs": 2},
        {"tenant_id": tenant, "region_policy": "STRICT", "job_runs": 1},
    ]
    assert told["day"] == "2026-03-14"
    # It lies before anything here was counted, or between since and until: said either way.
    assert isinstance(told["complete"], bool)
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    assert (await control.get(f"/internal/usage/{tomorrow}"))["complete"] is False


@pytest.mark.parametrize("day", ["2026-02-30", "9999-12-31", "x"])
async def test_no_such_day(control: Api, day: str) -> None:
    await control.problem("GET", f"/internal/usage/{day}", status=404, code="NOT_FOUND")


async def test_by_job_in_pages(running: Cell, control: Api) -> None:
    path = f"/internal/tenants/{ids.encode(ids.TENANT, running.api.tenant)}/job-usage"
    asked = f"{path}?since={DAY}&until={DAY + timedelta(days=2)}"
    names = [ids.encode(ids.JOB, job) for job in JOBS]
    whole = (await control.get(asked))["items"]
    assert [(item["job_id"], item["job_runs"]) for item in whole] == list(zip(names, (3, 1, 5), strict=True))
    first = (await control.get(asked + "&limit=2"))["items"]
    rest = (await control.get(asked + f"&limit=2&after={names[1]}"))["items"]
    assert first + rest == whole
    one = (await control.get(f"{path}?since={DAY}&until={DAY + timedelta(days=1)}"))["items"]
    assert [item["job_runs"] for item in one] == [2, 1]


@pytest.mark.parametrize("query", ["since=2026-03-14&until=2026-03-14", "since=2024-01-01&until=2026-03-14",
                                   "since=x&until=2026-03-14", "until=2026-03-14",
                                   "since=2026-03-14&until=2026-03-15&after=job_x"])  # fmt: skip
async def test_what_cannot_be_asked(running: Cell, control: Api, query: str) -> None:
    path = f"/internal/tenants/{ids.encode(ids.TENANT, running.api.tenant)}/job-usage?{query}"
    await control.problem("GET", path, status=422, code="INVALID")


async def test_only_the_control_plane_asks(running: Cell, control: Api) -> None:
    await running.api.problem("GET", f"/internal/usage/{DAY}", status=403, code="FORBIDDEN")
