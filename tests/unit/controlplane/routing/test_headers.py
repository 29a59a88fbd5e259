"""What is passed on, what is not; problems; settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.contract import ErrorCode
from controlplane.routing.forward import answer_headers, canonical, is_repeatable, pass_on
from controlplane.routing.limits import Verdict
from controlplane.routing.refusal import Refusal
from controlplane.routing.settings import BadSettings, from_environment


def test_hop_by_hop_and_forged_headers_stay_here() -> None:
    kept = pass_on(
        [
            (b"host", b"x"),
            (b"connection", b"close, X-Named"),
            (b"x-named", b"1"),
            (b"transfer-encoding", b"chunked"),
            (b"te", b"trailers"),
            (b"upgrade", b"websocket"),
            (b"authorization", b"Bearer x"),
            (b"x-clockhouse-tenant", b"forged"),
            (b"x-forwarded-for", b"1.2.3.4"),
            (b"x_forwarded_for", b"1.2.3.4"),
            (b"x_clockhouse_scopes", b"operator"),
            (b"content-type", b"application/json"),
            (b"accept", b"a"),
            (b"accept", b"b"),
            (b"x-utf8", "Zürich".encode()),
        ]
    )
    assert kept == [
        ("content-type", "application/json"),
        ("accept", "a"),
        ("accept", "b"),
        ("x-utf8", "Zürich"),
    ]


@given(st.lists(st.tuples(st.sampled_from([b"a", b"connection", b"x-clockhouse-a", b"te"]), st.binary())))
def test_headers_pass_or_are_refused(headers: list[tuple[bytes, bytes]]) -> None:
    named = {name for name, _ in headers}
    try:
        kept = pass_on(headers)
    except Refusal:
        assert "a" in {name.decode() for name in named}
    else:
        assert {name for name, _ in kept} <= {"a"}


def test_answers_lose_what_belongs_to_one_hop() -> None:
    raw = [
        (b"Connection", b"close"),
        (b"ETag", b"1"),
        (b"X-Clockhouse-A", b"1"),
        (b"Date", b"d"),
        (b"Link", b"l"),
    ]
    assert answer_headers(raw) == [(b"etag", b"1"), (b"link", b"l")]


def test_paths_for_django_are_escaped_in_one_way() -> None:
    assert canonical("/v1/api-keys/a%2Fb%7Ec:rotate?x=%2F") == "/v1/api-keys/a/b~c:rotate?x=%2F"
    assert canonical("/v1/members/Z%c3%BCrich") == "/v1/members/Z%C3%BCrich"
    with pytest.raises(Refusal):
        canonical("/v1/members/%ff")


def test_only_safe_requests_are_repeated() -> None:
    assert is_repeatable("GET", [])
    assert not is_repeatable("POST", [(b"content-type", b"x")])
    assert is_repeatable("POST", [(b"idempotency-key", b"x")])
    assert not is_repeatable("PATCH", [])


def test_a_refusal_is_a_problem_document() -> None:
    refusal = Refusal(
        429, ErrorCode.QUOTA_EXCEEDED, "Slow down.", retry_after_s=0.2, extensions={"scope": "tenant"}
    )
    status, headers, body = refusal.answer("req_1")
    assert status == 429
    assert dict(headers)[b"retry-after"] == b"1"
    assert dict(headers)[b"content-length"] == str(len(body)).encode()
    assert msgspec.json.decode(body) == {
        "type": "urn:clockhouse:problem:quota-exceeded",
        "title": "Quota exceeded",
        "status": 429,
        "detail": "Slow down.",
        "code": "QUOTA_EXCEEDED",
        "errors": [],
        "request_id": "req_1",
        "scope": "tenant",
    }


def test_rate_limit_fields() -> None:
    passed = dict(Verdict(allowed=True, wait_ms=0, left=7, full_ms=300).headers(10))
    assert passed == {b"ratelimit-policy": b'"api";q=10;w=1;qu="requests"', b"ratelimit": b'"api";r=7;t=1'}
    refused = Verdict(allowed=False, wait_ms=2100, left=0, full_ms=3000)
    assert dict(refused.headers(10))[b"ratelimit"] == b'"api";r=0;t=3'
    assert refused.refusal(10).retry_after == 3


GOOD = {
    "ROUTER_BIND": "127.0.0.1:8000",
    "ROUTER_FEED_URL": "http://127.0.0.1:8001/",
    "ROUTER_KEY": "ab" * 32,
    "ROUTER_DATA_DIR": "/tmp/x",
    "ROUTER_VALKEY_URL": "redis://127.0.0.1:6379/0",
}


def test_settings_are_read_and_checked() -> None:
    settings = from_environment(GOOD)
    assert (settings.host, settings.port, settings.feed_url) == ("127.0.0.1", 8000, "http://127.0.0.1:8001")
    assert settings.max_stale_s == 900
    for bad in (
        {"ROUTER_BIND": "8000"},
        {"ROUTER_KEY": "xyz"},
        {"ROUTER_KEY": "ab"},
        {"ROUTER_FEED_URL": ""},
        {"ROUTER_MAX_STALE_SECONDS": "soon"},
    ):
        with pytest.raises(BadSettings):
            from_environment(GOOD | bad)


def test_the_router_knows_no_django_and_no_database(root: Path) -> None:
    code = (
        "import sys, controlplane.routing.process; "
        "bad = {'django', 'psycopg', 'celery', 'billing'} & set(sys.modules); "
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
