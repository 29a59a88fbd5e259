"""Whatever is sent: an answer below 500, and nothing left half done."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.component.cells.api.harness import Cell

pytestmark = pytest.mark.asyncio(loop_scope="session")

SETTINGS = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

text = st.text(max_size=12) | st.sampled_from(
    ["\x00", "\ud7ff", "é", "../..", "0 0 * * *", "@daily", "UTC", "Europe/Berlin", "tgt_email", "a\r\nb",
     "2026-09-28T09:00:00", "2026-09-28T09:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00",
     "https://email.internal/v1/x", "https://user@email.internal/v1", "/a/%2e%2e/b", "1e999"]
)  # fmt: skip
number = st.integers() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
value = st.recursive(
    st.none() | st.booleans() | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=10,
)


def nearly(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with mostly plausible members."""
    plausible = st.fixed_dictionaries({}, optional={name: kind | value for name, kind in fields.items()})
    more = st.dictionaries(text, value, max_size=1)
    return plausible | st.tuples(plausible, more).map(lambda pair: pair[0] | pair[1])


schedule = nearly(
    type=st.sampled_from(["ONCE", "CRON", "RATE", "NOW"]),
    run_at=text,
    cron=text | st.from_regex(r"[0-9*/,\-]{1,4}( [0-9*/,\-]{1,3}){4}", fullmatch=True),
    every_seconds=st.integers(-1, 10**12),
    time_zone=st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "Nowhere/Land", ""]),
    start_at=text,
    end_at=text,
    dst=nearly(gap=st.sampled_from(["SHIFT", "SKIP"]), overlap=st.sampled_from(["FIRST", "BOTH"])),
)
job = nearly(
    schedule=schedule,
    target=nearly(
        target_id=st.just("tgt_email"), url=text, path=text, method=text, timeout_seconds=number, type=text
    ),
    payload=value,
    headers=st.dictionaries(text, text, max_size=3),
    name=text,
    key=text,
    tags=st.lists(text, max_size=3),
    retry_policy=nearly(max_attempts=number, initial_backoff_seconds=number, max_backoff_seconds=number),
    priority=st.sampled_from(["CRITICAL", "LOW", "low"]),
    dispatch_window_seconds=number,
    misfire_policy=st.sampled_from(["RUN_ONCE", "RUN_ALL", "SKIP"]),
    misfire_grace_seconds=number,
    region_policy=text,
)
preview = nearly(schedule=schedule, after=text, count=number)
target = nearly(
    target_id=text, base_url=text, max_concurrency=number, initial_concurrency=number, description=text,
    auth=nearly(type=text, token=text), owner_team=text,
)  # fmt: skip


@SETTINGS
@given(body=job | value)
async def test_any_job(running: Cell, body: Any) -> None:
    if not await running.store.get_target(running.api.tenant, "tgt_email"):
        await running.api.target("https://email.internal/v1", target_id="tgt_email")
    answer = await running.api.send("POST", "/v1/jobs", body)
    assert answer.status_code in (200, 201, 400, 409, 413, 422), answer.text
    if answer.status_code == 201:
        made = answer.json()
        await running.api.get(f"/v1/jobs/{made['job_id']}")
        await running.api.ok("DELETE", f"/v1/jobs/{made['job_id']}")


@SETTINGS
@given(body=preview | value)
async def test_any_preview(running: Cell, body: Any) -> None:
    answer = await running.api.send("POST", "/v1/schedules:preview", body)
    assert answer.status_code in (200, 400, 422), answer.text


@SETTINGS
@given(body=target | value)
async def test_any_target(running: Cell, body: Any) -> None:
    answer = await running.api.send("POST", "/v1/targets", body)
    assert answer.status_code in (201, 400, 409, 422), answer.text


@SETTINGS
@given(patch=job | value)
async def test_any_edit(running: Cell, patch: Any) -> None:
    if not await running.store.get_target(running.api.tenant, "tgt_email"):
        await running.api.target("https://email.internal/v1", target_id="tgt_email")
    made = await running.api.job("tgt_email", payload={"a": {"b": 1}}, headers={"X-A": "1"})
    answer = await running.api.send("PATCH", f"/v1/jobs/{made['job_id']}", patch)
    assert answer.status_code in (200, 400, 409, 413, 422), answer.text


@SETTINGS
@given(
    body=st.binary(max_size=300)
    | job.map(msgspec.json.encode).flatmap(
        lambda good: st.tuples(st.integers(0, len(good)), st.binary(max_size=3)).map(
            lambda cut: good[: cut[0]] + cut[1] + good[cut[0] :]
        )
    ),
    path=st.sampled_from(["/v1/jobs", "/v1/schedules:preview", "/v1/targets"]),
)
async def test_any_bytes(running: Cell, body: bytes, path: str) -> None:
    answer = await running.api.send("POST", path, body)
    assert answer.status_code in (200, 201, 400, 409, 413, 422), answer.text


@SETTINGS
@given(query=st.text(alphabet="abcdefilmrstu=&%0123+-:TZ_", min_size=1, max_size=40))
async def test_any_query(running: Cell, query: str) -> None:
    for path in (
        "/v1/jobs",
        "/v1/runs",
        "/v1/targets",
        "/v1/dlq",
        "/v1/stats",
        "/v1/delays",
        "/v1/herd",
        "/v1/events",
        "/v1/operations",
        "/v1/redrives",
    ):
        answer = await running.api.send("GET", f"{path}?{query}")
        assert answer.status_code in (200, 400, 422), answer.text
