"""EventBridge Scheduler's schedules become jobs that fire when it would, or are refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.client.importers.eventbridge import read_documents, read_eventbridge
from controlplane.client.importers.plan import CannotImport, Destination, Plan, PlannedJob
from tests.unit.controlplane.client.importers import expressions, oracle, ours

TO = Destination(target_id="tgt_aws", path="/{group}/{name}")
NOW = datetime(2026, 6, 1, tzinfo=UTC)
FULL = {
    "ActionAfterCompletion": "NONE",
    "Arn": "arn:aws:scheduler:eu-central-1:111122223333:schedule/reports/daily",
    "CreationDate": "2026-01-05T10:20:30.123000+01:00",
    "Description": "x",
    "EndDate": "2027-01-01T00:00:00+00:00",
    "FlexibleTimeWindow": {"MaximumWindowInMinutes": 15, "Mode": "FLEXIBLE"},
    "GroupName": "reports",
    "LastModificationDate": "2026-01-05T10:20:30.123000+01:00",
    "Name": "daily",
    "ScheduleExpression": "cron(30 2 ? * MON-FRI *)",
    "ScheduleExpressionTimezone": "Europe/Berlin",
    "StartDate": "2026-02-01T00:00:00+00:00",
    "State": "DISABLED",
    "Target": {
        "Arn": "arn:aws:lambda:eu-central-1:111122223333:function:report",
        "DeadLetterConfig": {"Arn": "arn:aws:sqs:eu-central-1:111122223333:dlq"},
        "Input": '{"report": "daily"}',
        "RetryPolicy": {"MaximumEventAgeInSeconds": 3600, "MaximumRetryAttempts": 4},
        "RoleArn": "arn:aws:iam::111122223333:role/r",
    },
}


def read(*documents: dict[str, Any], **options: Any) -> Plan:
    return read_eventbridge(json.dumps(documents), **{"destination": TO, "now": NOW, **options})


def one(**changes: Any) -> PlannedJob:
    document = {**FULL, "State": "ENABLED", **changes}
    plan = read({name: value for name, value in document.items() if value is not None})
    assert plan.refused == ()
    return plan.jobs[0]


def test_a_schedule_with_everything() -> None:
    (job,) = read(FULL).jobs
    assert (job.source, job.key, job.paused) == ("daily", "eventbridge:reports:daily", True)
    assert job.body == {
        "name": "daily",
        "schedule": {
            "type": "CRON", "cron": "30 2 ? * mon-fri *", "dialect": "EVENTBRIDGE",
            "time_zone": "Europe/Berlin",
            "start_at": "2026-02-01T00:00:00Z", "end_at": "2027-01-01T00:00:00Z",
            "dst": {"gap": "SKIP", "overlap": "FIRST"},
        },
        "target": {"type": "HTTP", "target_id": "tgt_aws", "path": "/reports/daily"},
        "dispatch_window_seconds": 900,
        "payload": {"report": "daily"},
        "retry_policy": {"max_attempts": 5, "initial_backoff_seconds": 10, "max_backoff_seconds": 900},
    }  # fmt: skip
    assert [d.about for d in job.differences] == ["target", "window", "retry", "dead letters", "state"]


def test_rates_and_single_times() -> None:
    rate = one(ScheduleExpression="rate(5 minutes)", EndDate=None).body["schedule"]
    assert rate == {"type": "RATE", "every_seconds": 300, "start_at": "2026-02-01T00:00:00Z"}
    anchored = one(ScheduleExpression="rate(1 day)", StartDate=None, EndDate=None)
    # Importing again must not move it, so it is counted from what does not change.
    assert anchored.body["schedule"]["start_at"] == "2026-01-05T09:20:30Z"
    assert "phase" in {d.about for d in anchored.differences}
    assert one(ScheduleExpression="at(2026-11-20T13:00:00)").body["schedule"] == {
        "type": "ONCE", "run_at": "2026-11-20T13:00:00", "time_zone": "Europe/Berlin",
        "dst": {"gap": "SHIFT", "overlap": "FIRST"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("aws", "ours_"),
    [
        ("0 10 * * ? *", "0 10 * * ? *"),
        ("15 12 ? * 2-6 *", "15 12 ? * 2-6 *"),
        ("0/15 9-17 ? JAN-MAR MON 2027,2029", "0/15 9-17 ? jan-mar mon 2027,2029"),
        ("*/90 5 1/40 * ? *", "*/60 5 1/31 * ? *"),
        ("0 6 L 2 ? *", "0 6 l 2 ? *"),
        ("0 6 15W * ? *", "0 6 15w * ? *"),
        ("0 6 ? * L *", "0 6 ? * l *"),
        ("0 6 ? * 6L *", "0 6 ? * 6l *"),
        ("0 6 ? * FRIL *", "0 6 ? * fril *"),
        ("0 6 ? * MON#1 *", "0 6 ? * mon#1 *"),
    ],
)
def test_fields(aws: str, ours_: str) -> None:
    schedule = one(ScheduleExpression=f"cron({aws})", EndDate=None).body["schedule"]
    assert (schedule["cron"], schedule["dialect"]) == (ours_, "EVENTBRIDGE")
    assert ours.fires(schedule, start=NOW, until=NOW + timedelta(days=2000), most=1)


def test_bounds_are_kept_beside_the_years() -> None:
    both = one(ScheduleExpression="cron(0 0 1 1 ? 2020-2030)").body["schedule"]
    assert (both["start_at"], both["end_at"]) == ("2026-02-01T00:00:00Z", "2027-01-01T00:00:00Z")
    plain = {"StartDate": None, "EndDate": None}
    assert "start_at" not in one(ScheduleExpression="cron(0 0 1 1 ? *)", **plain).body["schedule"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ScheduleExpression": None}, "list-schedules leaves it out"),
        ({"ScheduleExpression": None, "EventPattern": "{}"}, "waits for events"),
        ({"ScheduleExpression": "rate(0 minutes)"}, "never moves"),
        ({"ScheduleExpression": "rate(5 weeks)"}, "none of rate"),
        ({"ScheduleExpression": "rate(1 hour)", "StartDate": None, "CreationDate": None}, "keep its phase"),
        ({"ScheduleExpression": "cron(0 10 * * *)"}, "six fields, this has 5"),
        ({"ScheduleExpression": "cron(0 10 * * * *)"}, "must be `?`"),
        ({"ScheduleExpression": "cron(0 10 ? * ? *)"}, "must be `?`"),
        ({"ScheduleExpression": "cron(? 10 * * ? *)"}, "two day fields only"),
        ({"ScheduleExpression": "cron(0 10 LW * ? *)"}, "W stands behind one day"),
        ({"ScheduleExpression": "cron(0 10 1,15W * ? *)"}, "W stands behind one day"),
        ({"ScheduleExpression": "cron(0 10 31W 4 ? *)"}, "never runs"),
        ({"ScheduleExpression": "cron(0 10 ? * 15W *)"}, "W belongs to the day of month"),
        ({"ScheduleExpression": "cron(0 10 L-3 1 ? *)"}, "with an offset"),
        ({"ScheduleExpression": "cron(0 10 ? * MON#6 *)"}, "day#1 to day#5"),
        ({"ScheduleExpression": "cron(0 10 ? * 0 *)"}, "day of week: 0 is not in 1-7"),
        ({"ScheduleExpression": "cron(0 10 ? * 6-2 *)"}, "runs backwards"),
        ({"ScheduleExpression": "cron(0 10 31 4 ? *)"}, "never runs"),
        ({"ScheduleExpression": "cron(0 10 1 1 ? 2020-2025)"}, "all its years are past"),
        ({"EndDate": "2026-05-01T00:00:00+00:00"}, "it is over"),
        ({"StartDate": "soon"}, "StartDate is no date"),
        ({"ScheduleExpressionTimezone": "Mars/Phobos"}, "'Mars/Phobos' is not a time zone"),
    ],
)
def test_what_cannot_be_said_is_refused(changes: dict[str, Any], reason: str) -> None:
    document = {name: value for name, value in {**FULL, **changes}.items() if value is not None}
    plan = read(document, {**FULL, "Name": "good"})
    (refused,) = plan.refused
    assert refused.source == "daily"
    assert reason in refused.reason
    assert [job.source for job in plan.jobs] == ["good"]


def test_what_differs_is_listed() -> None:
    job = one(
        FlexibleTimeWindow={"Mode": "OFF"},
        ScheduleExpression="cron(0 * * * ? *)",
        ActionAfterCompletion="DELETE",
        Target={"Input": "run <aws.scheduler.execution-id>"},
    )
    assert (job.body["payload"], job.body["dispatch_window_seconds"]) == (
        "run <aws.scheduler.execution-id>",
        60,
    )
    assert job.body["retry_policy"]["max_attempts"] == 100
    told = [(d.about, d.detail) for d in job.differences]
    assert [about for about, _ in told] == ["dst", "window", "payload", "payload", "retry", "retry", "end"]
    assert ("retry", "185 retries there, 99 here") in told


def test_exports_come_in_several_shapes() -> None:
    text = json.dumps(FULL)
    assert read_documents(text) == [FULL]
    assert read_documents(f"[{text}, {text}]") == [FULL, FULL]
    assert read_documents(f"{text}\n{text}\n") == [FULL, FULL]
    assert read_documents(json.dumps({"Schedules": [FULL], "NextToken": "x"})) == [FULL]
    seconds = one(StartDate=1_770_000_000.5, EndDate=None).body["schedule"]
    assert seconds["start_at"] == "2026-02-02T02:40:00Z"
    for broken in ("", "{", "[1]", "name,expression"):
        with pytest.raises(CannotImport):
            read_documents(broken)


def test_a_schedule_that_is_there_twice_is_told() -> None:
    plan = read(FULL, FULL)
    assert (len(plan.jobs), len(plan.refused)) == (1, 1)
    assert "was there already" in plan.refused[0].reason


@settings(max_examples=80, deadline=None)
@given(
    expression=expressions.eventbridge(),
    zone=st.sampled_from(["UTC", "Asia/Kolkata", "America/Phoenix"]),
    start=st.datetimes(datetime(2026, 6, 2), datetime(2027, 12, 1)),  # noqa: DTZ001
)
def test_a_translated_cron_fires_when_eventbridge_would(expression: str, zone: str, start: datetime) -> None:
    after = start.replace(tzinfo=UTC, second=0, microsecond=0)
    until = after + timedelta(days=798)
    plan = read(
        {"Name": "n", "ScheduleExpression": f"cron({expression})", "ScheduleExpressionTimezone": zone}
    )
    expected = oracle.fires(expression, dialect="aws", zone=zone, start=after, days=800, most=40)
    if not plan.jobs:
        (refused,) = plan.refused
        assert expected == [], refused  # the only honest reason: it never fires
        return
    try:
        got = ours.fires(plan.jobs[0].body["schedule"], start=after, until=until, most=40)
    except ValueError:  # no occurrence is left
        got = []
    assert got == [at for at in expected if at < until]
