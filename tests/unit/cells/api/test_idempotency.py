"""The Idempotency-Key header."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.api.idempotency import InFlight, read_key
from cells.api.problems import Problem
from cells.contract import ErrorCode


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (None, None),
        ("5d0c1f3a-8a7e", "5d0c1f3a-8a7e"),
        ('"5d0c1f3a-8a7e"', "5d0c1f3a-8a7e"),
        (' "a b" ', "a b"),
        (r'"a\"b\\c"', r'a"b\c'),
        ("x" * 255, "x" * 255),
    ],
)
def test_quoted_or_bare_is_the_same_key(header: str | None, key: str | None) -> None:
    assert read_key(header) == key


@pytest.mark.parametrize(
    "header", ["", '""', '"', '"a', 'a"b', "a b", '"ä"', "ä", "a\x00b", "x" * 256, '"\x7f"']
)
def test_anything_else_is_refused(header: str) -> None:
    with pytest.raises(Problem) as refused:
        read_key(header)
    assert refused.value.status == 422
    assert refused.value.errors[0]["header"] == "Idempotency-Key"


@given(st.text(max_size=300))
def test_any_header_is_a_short_key_or_a_problem(header: str) -> None:
    try:
        key = read_key(header)
    except Problem:
        return
    assert key is not None
    assert 0 < len(key) <= 255


def test_one_request_at_a_time_under_one_key() -> None:
    running, tenant = InFlight(), uuid.uuid4()
    with running.hold(tenant, "POST /v1/jobs", "k"):
        with (
            running.hold(uuid.uuid4(), "POST /v1/jobs", "k"),
            running.hold(tenant, "POST /v1/targets", "k"),
            running.hold(tenant, "POST /v1/jobs", None),
            running.hold(tenant, "POST /v1/jobs", None),
        ):
            pass
        with pytest.raises(Problem) as refused, running.hold(tenant, "POST /v1/jobs", "k"):
            pass
        assert (refused.value.status, refused.value.code) == (409, ErrorCode.IDEMPOTENCY_IN_PROGRESS)
    with running.hold(tenant, "POST /v1/jobs", "k"):
        pass
