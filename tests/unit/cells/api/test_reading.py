"""Bodies and queries: whatever comes, a model or a problem that says everything."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.api.models import PAYLOAD_LIMIT, JobIn, PreviewIn
from cells.api.problems import Problem
from cells.api.queries import JobQuery
from cells.api.reading import read_fields, read_model, read_query, take_payload
from cells.api.target_models import TargetCreate
from cells.contract import ErrorCode

JOB: dict[str, Any] = {
    "schedule": {"type": "CRON", "cron": "0 8 * * *", "time_zone": "America/New_York"},
    "target": {"url": "https://email.internal/v1/digests", "method": "POST", "timeout_seconds": 30},
    "payload": {"user_id": 1001, "kind": "daily_digest"},
    "retry_policy": {"max_attempts": 5, "initial_backoff_seconds": 10, "max_backoff_seconds": 600},
    "misfire_policy": "RUN_ONCE",
}


def faults(model: Any, body: dict[str, Any]) -> dict[str, str]:
    fields = read_fields(msgspec.json.encode(body))
    take_payload(fields)
    with pytest.raises(Problem) as refused:
        read_model(fields, model)
    assert (refused.value.status, refused.value.code) == (422, ErrorCode.INVALID)
    return {fault["pointer"]: fault["detail"] for fault in refused.value.errors}


def test_an_empty_time_is_told_in_plain_words() -> None:
    empty = {"type": "ONCE", "run_at": ""}
    assert faults(JobIn, {**JOB, "schedule": empty}) == {"/schedule/run_at": "must not be empty"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"a":1} x',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":"\xff"}',
        b'{"payload":"\xed\xa0\x80"}',
        b'{"a":"\x00"}',
        b'{"a":"\\ud800"}',
        b'\xef\xbb\xbf{"a":1}',
        '{"a":1}'.encode("utf-16"),
        b'{"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_no_json_is_malformed(body: bytes) -> None:
    with pytest.raises(Problem) as refused:
        read_fields(body)
    assert (refused.value.status, refused.value.code) == (400, ErrorCode.MALFORMED)


@pytest.mark.parametrize("body", [b"[]", b"1", b'"x"', b"null", b"true"])
def test_json_that_is_no_object_is_invalid(body: bytes) -> None:
    with pytest.raises(Problem) as refused:
        read_fields(body)
    assert refused.value.errors == [{"pointer": "", "detail": "must be an object"}]


def test_an_optional_body_may_be_missing() -> None:
    assert read_fields(b"", optional=True) == {}


def test_a_payload_keeps_its_bytes() -> None:
    payload = b'{"n": 1.10, "big": 123456789012345678901234567890, "e": 1E+5}'
    fields = read_fields(b'{"payload": ' + payload + b' , "x": 1}')
    assert take_payload(fields) == payload
    assert list(fields) == ["x"]
    assert take_payload(read_fields(b'{"payload": null}')) is None
    assert take_payload(read_fields(b"{}")) is None
    assert take_payload(read_fields(b'{"payload": 0}')) == b"0"


@pytest.mark.parametrize("payload", [b"1e999", b'{"a":[-1e400]}', b"9" * 5000])
def test_a_payload_that_breaks_readers_is_refused(payload: bytes) -> None:
    with pytest.raises(Problem) as refused:
        take_payload(read_fields(b'{"payload":' + payload + b"}"))
    assert [fault["pointer"] for fault in refused.value.errors] == ["/payload"]


def test_a_payload_has_a_limit() -> None:
    exact = '"' + "x" * (PAYLOAD_LIMIT - 2) + '"'
    assert take_payload(read_fields(f'{{"payload":{exact}}}'.encode())) == exact.encode()
    with pytest.raises(Problem) as refused:
        take_payload(read_fields(f'{{"payload":"x{exact[1:]}}}'.encode()))
    assert (refused.value.status, refused.value.code) == (413, ErrorCode.PAYLOAD_TOO_LARGE)


def test_the_first_example_is_well_formed() -> None:
    fields = read_fields(msgspec.json.encode(JOB))
    take_payload(fields)
    job = read_model(fields, JobIn)
    assert job.retry_policy.max_backoff_seconds == 600
    assert job.priority == "DEFAULT"


def test_every_fault_is_listed_at_its_place() -> None:
    found = faults(
        JobIn,
        {
            "schedule": {"type": "CRON", "cron": 5, "when": 1},
            "target": {"target_id": "nope", "timeout_seconds": 0, "method": "post"},
            "headers": {"Host": "x", "X~/": "y", "ok": 1},
            "retry_policy": {"max_attempts": "5", "max_backoff_seconds": 901},
            "priority": 2,
            "tags": ["", "a\u0000b"],
            "dispatch_window_seconds": 1.5,
            "misfire_grace_seconds": True,
            "calendar": "x",
            "overlap/policy~": "SKIP",
        },
    )
    assert set(found) == {
        "/schedule/cron",
        "/schedule/when",
        "/target/target_id",
        "/target/timeout_seconds",
        "/target/method",
        "/headers/ok",
        "/retry_policy/max_attempts",
        "/retry_policy/max_backoff_seconds",
        "/priority",
        "/tags/0",
        "/tags/1",
        "/dispatch_window_seconds",
        "/misfire_grace_seconds",
        "/calendar",
        "/overlap~1policy~0",
    }
    assert found["/calendar"] == "unknown field"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"schedule": None}, "/schedule"),
        ({"schedule": {}}, "/schedule/type"),
        ({"schedule": {"type": "QUARTZ"}}, "/schedule/type"),
        ({"schedule": {"type": "NOW", "run_at": "x"}}, "/schedule/run_at"),
        ({"schedule": {"type": "CRON", "cron": "0 8 * * *", "dst": {"gap": "shift"}}}, "/schedule/dst/gap"),
        ({"target": {}}, "/target"),
        ({"target": {"target_id": "tgt_a", "url": "https://a.example"}}, "/target"),
        ({"target": {"url": "https://a.example", "path": "/x"}}, "/target"),
        ({"target": {"target_id": "tgt_a", "path": "/../x"}}, "/target/path"),
        ({"target": {"url": "https://u:p@a.example/"}}, "/target/url"),
        ({"target": {"target_id": "tgt_a", "type": "FAX"}}, "/target/type"),
        ({"target": {"target_id": "tgt_a", "type": 7}}, "/target/type"),
        ({"target": {"type": "TASK_QUEUE"}}, "/target/task_queue"),
        ({"target": {"type": "TASK_QUEUE", "task_queue": "a b"}}, "/target/task_queue"),
        ({"target": {"type": "TASK_QUEUE", "task_queue": "a", "lease_seconds": 4}}, "/target/lease_seconds"),
        ({"target": {"type": "TASK_QUEUE", "task_queue": "a", "path": "/x"}}, "/target/path"),
        ({"delivery": "EXACTLY_ONCE"}, "/delivery"),
        ({"headers": {"Webhook-Id": "x"}}, "/headers/Webhook-Id"),
        ({"headers": {"a": "b\r\nc"}}, "/headers/a"),
        ({"tags": ["a", "a"]}, "/tags"),
        ({"retry_policy": {"initial_backoff_seconds": 20, "max_backoff_seconds": 10}}, "/retry_policy"),
        ({"dispatch_window_seconds": 0}, "/dispatch_window_seconds"),
        ({"name": ""}, "/name"),
        ({"name": "a\nb"}, "/name"),
        ({"region_policy": "NOWHERE"}, "/region_policy"),
    ],
)
def test_one_wrong_member(change: dict[str, Any], pointer: str) -> None:
    assert list(faults(JobIn, {**JOB, **change})) == [pointer]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"base_url": "https://u:p@a.example"}, "/base_url"),
        ({"target_id": "tgt_"}, "/target_id"),
        ({"target_id": "tgt_a/b"}, "/target_id"),
        ({"target_id": "tgt_a\n"}, "/target_id"),
        ({"max_concurrency": 0}, "/max_concurrency"),
        ({"max_concurrency": 5, "initial_concurrency": 6}, "/initial_concurrency"),
        ({"auth": {"type": "BEARER"}}, "/auth"),
        ({"auth": {"type": "BASIC", "username": "u"}}, "/auth"),
        ({"auth": {"type": "BASIC", "username": "u:v", "password": "p"}}, "/auth/username"),
        ({"auth": {"token": "t"}}, "/auth"),
        ({"auth": {"type": "BEARER", "token": "a\r\nb"}}, "/auth/token"),
        ({"description": "a\u0000"}, "/description"),
    ],
)
def test_one_wrong_member_of_a_target(change: dict[str, Any], pointer: str) -> None:
    assert list(faults(TargetCreate, {"base_url": "https://a.example", **change})) == [pointer]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)
names = st.sampled_from(
    [*JOB, "headers", "tags", "name", "key", "priority", "dispatch_window_seconds", "after", "count"]
)
bodies = st.dictionaries(names | st.text(max_size=5), json_values, max_size=8)


@given(bodies, st.sampled_from([JobIn, PreviewIn, TargetCreate]))
def test_any_object_is_a_model_or_a_problem(body: dict[str, Any], model: Any) -> None:
    try:
        fields = read_fields(msgspec.json.encode(body))
        take_payload(fields)
        read_model(fields, model)
    except Problem as problem:
        refused = problem.response({"type": "http", "headers": []})
        assert refused.status_code in (400, 413, 422)


@given(st.binary(max_size=200))
def test_any_bytes_are_fields_or_a_problem(body: bytes) -> None:
    with contextlib.suppress(Problem):
        read_fields(body)


def test_a_query_lists_its_faults() -> None:
    with pytest.raises(Problem) as refused:
        read_query(b"limit=0&state=LOST&stat=x&tag=&due_from=2026-01-01&limit=3", JobQuery)
    assert {fault["parameter"] for fault in refused.value.errors} == {
        "limit",
        "state",
        "stat",
        "tag",
        "due_from",
    }
    assert {"parameter": "stat", "detail": "unknown parameter"} in refused.value.errors


def test_a_query_is_read() -> None:
    query = read_query(b"limit=200&state=SCHEDULED&tag=a%20b&due_from=2026-01-01T00:00:00%2B02:00", JobQuery)
    assert (query.limit, query.tag) == (200, "a b")
    assert query.job_state() == "ACTIVE"
    assert query.due_from is not None
    assert query.due_from.isoformat() == "2025-12-31T22:00:00+00:00"


@given(st.binary(max_size=60))
def test_any_query_is_read_or_a_problem(query: bytes) -> None:
    with contextlib.suppress(Problem):
        read_query(query, JobQuery)
