"""Requests and answers as values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from controlplane.client import calls, management, run_calls, worker_calls
from controlplane.client.errors import (
    ApiError,
    Conflict,
    EpochSuperseded,
    Invalid,
    QuotaExceeded,
    ServerError,
    StrictAllowanceExceeded,
    Unavailable,
    UnexpectedAnswer,
)
from controlplane.client.specs import Dst, HttpTarget, NewJob, Retry, Schedule
from controlplane.client.wire import Answer, Call, error_of, outcome, retry_after

NOW = datetime(2026, 9, 28, 12, tzinfo=UTC)
LOCAL = datetime.fromisoformat("2026-09-28T09:00:00")


def answer(status: int, body: bytes = b"", **headers: str) -> Answer:
    return Answer(status=status, headers={n.replace("_", "-"): v for n, v in headers.items()}, body=body)


def test_a_whole_job_is_sent_as_it_was_said() -> None:
    call = calls.create_job(
        NewJob(
            schedule=Schedule.cron(
                "0 8 * * *", time_zone="Europe/Berlin", dst=Dst(gap="SKIP", overlap="BOTH")
            ),
            target=HttpTarget("tgt_a", path="/x", timeout_seconds=5),
            payload=None,
            tags=("a", "b"),
            retry_policy=Retry(max_attempts=2),
        ),
        idempotency_key="k",
    )
    assert (call.method, call.path, call.all_headers()) == ("POST", "/v1/jobs", {"Idempotency-Key": "k"})
    assert call.body == {
        "schedule": {
            "type": "CRON",
            "cron": "0 8 * * *",
            "time_zone": "Europe/Berlin",
            "dst": {"gap": "SKIP", "overlap": "BOTH"},
        },
        "target": {"type": "HTTP", "target_id": "tgt_a", "path": "/x", "timeout_seconds": 5},
        "payload": None,  # null is a payload; to give none is to leave it out
        "tags": ["a", "b"],
        "retry_policy": {"max_attempts": 2},
    }
    assert "payload" not in NewJob(schedule=Schedule.now(), target=HttpTarget("tgt_a")).body()


def test_schedules_refuse_what_has_no_meaning() -> None:
    assert Schedule.every(timedelta(minutes=5)).body() == {"type": "RATE", "every_seconds": 300}
    assert Schedule.once(LOCAL, time_zone="Europe/Berlin").body() == {
        "type": "ONCE", "run_at": "2026-09-28T09:00:00", "time_zone": "Europe/Berlin",
    }  # fmt: skip
    with pytest.raises(ValueError, match="no whole number"):
        Schedule.every(timedelta(milliseconds=1500))
    with pytest.raises(ValueError, match="needs a time_zone"):
        Schedule.once(LOCAL)
    with pytest.raises(ValueError, match="no time zone"):
        calls.list_jobs(due_from=LOCAL)


def test_paths_are_escaped_and_run_ids_keep_their_colons() -> None:
    assert calls.get_job("a/../b?c").path == "/v1/jobs/a%2F..%2Fb%3Fc"
    assert (
        run_calls.cancel_run("job_1:2026-09-28T00:00:00Z").path
        == "/v1/runs/job_1:2026-09-28T00:00:00Z:cancel"
    )
    assert calls.put_job_by_key("nightly report", {"key": "other"}).path == "/v1/jobs/by-key/nightly%20report"
    assert calls.put_job_by_key("nightly", {"key": "other"}).body == {}


def test_queries_leave_out_what_was_not_asked() -> None:
    east = timezone(timedelta(hours=2))
    call = calls.list_jobs(tag="x", due_from=datetime(2026, 9, 28, 2, tzinfo=east), limit=10)
    assert call.query == {"tag": "x", "due_from": "2026-09-28T00:00:00Z", "limit": "10"}
    assert management.read_usage(since="2026-09-01").query == {"from": "2026-09-01"}


@pytest.mark.parametrize(
    ("call", "safe"),
    [
        (calls.get_job("job_1"), True),
        (calls.cancel_job("job_1"), True),
        (calls.put_job_by_key("k", {}), True),
        (calls.pause_job("job_1"), True),
        (calls.preview_schedule(Schedule.now()), True),
        (calls.create_job({}), False),
        (calls.create_job({}).with_key("k"), True),
        (calls.trigger_job("job_1").with_key("k"), True),
        (calls.edit_job("job_1", {}), False),
        (management.rotate_target_secret("tgt_1"), False),
        (management.rotate_api_key("k").with_key("k"), True),
        (management.revoke_api_key("k"), True),
        (worker_calls.poll("q", worker_id="w", wait_seconds=1, max_tasks=1), False),
        (worker_calls.complete("r", epoch=1, outcome="SUCCEEDED"), True),
    ],
)
def test_what_may_be_sent_again(call: Call[object], safe: bool) -> None:
    assert call.safe is safe


def test_a_given_key_is_not_replaced_and_reads_have_none() -> None:
    assert calls.create_job({}, idempotency_key="mine").with_key("other").idempotency_key == "mine"
    assert calls.get_job("job_1").with_key("k").all_headers() == {}
    assert calls.edit_job("job_1", {}, version=7).all_headers() == {"If-Match": '"7"'}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        ("Mon, 28 Sep 2026 12:00:05 GMT", 5.0),
        ("Mon, 28 Sep 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("", None),
    ],
)
def test_retry_after(text: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": text}, NOW) == seconds


def test_a_problem_becomes_its_error_with_every_fault() -> None:
    error = error_of(
        answer(
            422,
            b'{"code": "INVALID", "detail": "2 faults; see errors.", "title": "t", "errors": ['
            b'{"pointer": "/schedule/cron", "detail": "minute: 61"},'
            b'{"parameter": "limit", "detail": "big"}]}',
            x_request_id="req_1",
        ),
        NOW,
    )
    assert type(error) is Invalid
    assert [str(fault) for fault in error.faults] == ["schedule.cron: minute: 61", "?limit: big"]
    assert str(error) == "422 INVALID: 2 faults; see errors.\n  schedule.cron: minute: 61\n  ?limit: big"
    assert error.request_id == "req_1"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (409, b'{"code": "CONFLICT"}', Conflict),
        (409, b'{"reason": "EPOCH_SUPERSEDED"}', EpochSuperseded),
        (409, b'{"code": "STRICT_ALLOWANCE_EXCEEDED"}', StrictAllowanceExceeded),
        (429, b"{}", QuotaExceeded),
        (500, b"{}", ServerError),
        (503, b"<html>", Unavailable),
        (418, b"{}", ApiError),
    ],
)
def test_families(status: int, body: bytes, kind: type[ApiError]) -> None:
    error = error_of(answer(status, body), NOW)
    assert type(error) is kind
    assert error.status == status


def test_the_nearest_free_second() -> None:
    error = error_of(
        answer(409, b'{"code": "STRICT_ALLOWANCE_EXCEEDED", "nearest_available": "2026-09-28T12:00:03Z"}'),
        NOW,
    )
    assert isinstance(error, StrictAllowanceExceeded)
    assert error.nearest_available == NOW + timedelta(seconds=3)


def test_answers_of_somebody_else_are_said_to_be_that() -> None:
    with pytest.raises(UnexpectedAnswer, match="no JSON"):
        outcome(calls.get_job("job_1"), answer(200, b"<html>hello"), NOW)
    with pytest.raises(UnexpectedAnswer, match="redirect"):
        outcome(calls.get_job("job_1"), answer(302), NOW)
    with pytest.raises(UnexpectedAnswer, match="JSON list"):
        outcome(calls.get_job("job_1"), answer(200, b"[]"), NOW)


def test_polls_are_read_in_each_of_their_forms() -> None:
    call = worker_calls.poll("q", worker_id="w", wait_seconds=20, max_tasks=2)
    assert call.timeout == 35.0
    date = "Mon, 28 Sep 2026 12:00:00 GMT"
    one = (
        b'{"run_id": "r", "epoch": 3, "lease_expires_at": "2026-09-28T12:00:31Z",'
        b' "heartbeat_every_seconds": 10, "payload": {"a": 1}, "idempotency_key": "k"}'
    )
    (task,) = call.read(answer(200, one, date=date))
    assert (task.run_id, task.epoch, task.payload, task.idempotency_key) == ("r", 3, {"a": 1}, "k")
    # Measured on the server's clock: ours may be anything.
    assert (task.lease.seconds, task.heartbeat_every_seconds) == (31.0, 10.0)
    assert call.read(answer(200, b'{"tasks": [' + one + b"," + one + b"]}", date=date)) == (task, task)
    assert call.read(answer(200, b'{"tasks": []}')) == ()
    assert call.read(answer(204)) == ()
    with pytest.raises(UnexpectedAnswer, match="epoch"):
        call.read(answer(200, b'{"run_id": "r", "lease_expires_at": "2026-09-28T12:00:31Z"}'))


def test_a_batch_has_a_result_for_each_job() -> None:
    call = calls.create_jobs([{"a": 1}, {"b": 2}])
    assert call.body == {"jobs": [{"a": 1}, {"b": 2}]}
    good, bad = call.read(
        answer(
            200,
            b'{"results": [{"status": 201, "job_id": "job_1", "due_at": null},'
            b' {"status": 422, "problem": {"code": "INVALID", "detail": "d",'
            b' "errors": [{"pointer": "/b", "detail": "unknown field"}]}}]}',
        )
    )
    assert (good.ok, good.job_id, good.replayed) == (True, "job_1", False)
    assert (bad.ok, bad.index, bad.code, str(bad.faults[0])) == (False, 1, "INVALID", "b: unknown field")
    with pytest.raises(ValueError, match="1000"):
        calls.create_jobs([{}] * 1001)
