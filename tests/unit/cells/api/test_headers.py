"""Headers that jobs may and may not set."""

from __future__ import annotations

import pytest

from cells.api.headers import COUNT_LIMIT, header_faults


def test_ordinary_headers_pass() -> None:
    assert (
        header_faults({"X-Team": "billing", "Authorization": "Bearer abc", "Accept": "*/*", "X-Empty": ""})
        == []
    )


@pytest.mark.parametrize(
    "name",
    ["Host", "content-length", "Idempotency-Key", "X-Fencing-Token", "Webhook-Id", "webhook-anything",
     "Transfer-Encoding", "Connection", "X-Clockhouse-Tenant", "traceparent"],
)  # fmt: skip
def test_ours_and_those_of_http_are_refused(name: str) -> None:
    assert header_faults({name: "x"}) == [(name, "is set by Clockhouse or by HTTP itself")]


@pytest.mark.parametrize("name", ["", "a b", "a:b", "ä", "a\r\n", "x\x00"])
def test_what_is_no_token_is_refused(name: str) -> None:
    assert header_faults({name: "x"}) == [(name, "is no header name")]


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\x00", " a", "a ", "\ta", "ä", "\x7f"])
def test_what_is_no_value_is_refused(value: str) -> None:
    ((name, detail),) = header_faults({"X-A": value})
    assert name == "X-A"
    assert detail.startswith("is no header value")


def test_all_faults_at_once_and_the_limits() -> None:
    assert [name for name, _ in header_faults({"Host": "x", "X-A": "1", "x-a": "2", "b c": "3"})] == [
        "Host",
        "x-a",
        "b c",
    ]
    assert header_faults({f"X-{i}": "v" for i in range(COUNT_LIMIT + 1)}) == [
        ("", f"has more than {COUNT_LIMIT} members")
    ]
    assert header_faults({"X-A": "v" * 9000})[0][0] == ""
