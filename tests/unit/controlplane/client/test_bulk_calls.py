"""Requests about many jobs, what is to come, and targets: what is sent and how answers are read."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from controlplane.client import AsyncClockhouse, Clockhouse, bulk_calls, calendar_calls, management, run_calls
from controlplane.client.decoding import decode
from controlplane.client.documents import Tenant
from controlplane.client.wire import Call

AT = datetime(2026, 11, 30, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("call", "method", "path", "body"),
    [
        (
            bulk_calls.select_jobs("pause", tag="x", due_from=AT, state=None),
            "POST", "/v1/selections",
            {"action": "pause", "filter": {"tag": "x", "due_from": "2026-11-30T08:00:00+00:00"}},
        ),
        (
            bulk_calls.apply_selection("sel_1", "ab", max_per_second=5),
            "POST", "/v1/selections/sel_1:apply", {"hash": "ab", "max_per_second": 5},
        ),
        (bulk_calls.stop_operation("op_1"), "POST", "/v1/operations/op_1:stop", None),
        (
            bulk_calls.test_target("tgt/x", path="/y", method=None),
            "POST", "/v1/targets/tgt%2Fx:test", {"path": "/y"},
        ),
        (
            calendar_calls.put_calendar("cal_x", dates=[date(2026, 12, 25)], weekdays=["SUN"]),
            "PUT", "/v1/calendars/cal_x", {"dates": ["2026-12-25"], "weekdays": ["SUN"]},
        ),
        (calendar_calls.delete_calendar("cal_x"), "DELETE", "/v1/calendars/cal_x", None),
        (
            calendar_calls.plan_backfill("job_1", since=AT, until="2026-11-30T09:00:00Z"),
            "POST", "/v1/jobs/job_1:backfill",
            {"from": "2026-11-30T08:00:00Z", "until": "2026-11-30T09:00:00Z", "dry_run": True},
        ),
        (
            calendar_calls.backfill_job("job_1", since=AT, until=AT, max_per_second=5),
            "POST", "/v1/jobs/job_1:backfill",
            {
                "from": "2026-11-30T08:00:00Z", "until": "2026-11-30T08:00:00Z", "max_per_second": 5,
                "dry_run": False,
            },
        ),
        (calendar_calls.stop_backfill("bf_1"), "POST", "/v1/backfills/bf_1:stop", None),
        (bulk_calls.get_target_health("tgt_x"), "GET", "/v1/targets/tgt_x/health", None),
    ],
)  # fmt: skip
def test_what_is_sent(call: Call[Any], method: str, path: str, body: Any) -> None:
    assert (call.method, call.path, call.body) == (method, path, body)


def test_filters_are_parameters() -> None:
    letters = run_calls.list_dead_letters(job_id="job_1", reason="POISON", failed_from="2026-11-30T08:00:00Z")
    assert {"job_id", "reason", "failed_from"} <= set(letters.query)
    assert bulk_calls.read_herd(hours=5, target="tgt_x").query == {"hours": "5", "target": "tgt_x"}
    assert run_calls.read_stats(job_id="job_1").query == {"job_id": "job_1"}


def test_an_approval_of_what_was_looked_at_is_not_repeated() -> None:
    assert management.approve_target("tgt_x").repeatable
    pinned = management.approve_target("tgt_x", version=3)
    assert (pinned.headers, pinned.repeatable) == ({"If-Match": '"3"'}, False)


def test_both_clients_have_them() -> None:
    for kind in (Clockhouse, AsyncClockhouse):
        client = kind("http://127.0.0.1:1", "ch_live_abcdefghij234567_" + "x" * 43)
        for part, names in {
            "selections": ("create", "get", "apply"),
            "operations": ("list", "page", "get", "stop"),
            "calendars": ("list", "page", "get", "put", "delete"),
            "backfills": ("list", "page", "get", "plan", "start", "stop"),
            "targets": ("health", "test"),
            "stats": ("herd",),
        }.items():
            assert all(callable(getattr(getattr(client, part), name)) for name in names), part


def test_a_tenant_tells_its_use() -> None:
    document = {
        "tenant_id": "tnt_1", "slug": "demo", "name": "Demo", "state": "ACTIVE", "usage_unknown": None,
        "usage": [{"name": "running_runs", "quota": 10, "used": 5.0, "at_least": False, "share": 50.0,
                   "measured": "now"}],
    }  # fmt: skip
    (use,) = decode(Tenant, document).usage
    assert (use.name, use.used, use.share) == ("running_runs", 5.0, 50.0)
