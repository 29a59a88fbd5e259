"""Signatures between our own parts: what is accepted; of everything else comes a refusal, and no crash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.contract import (
    BODY_HASH_HEADER,
    EPOCH_HEADER,
    SCOPES_HEADER,
    SIGNATURE_HEADER,
    SIGNATURE_TOLERANCE_MS,
    TENANT_HEADER,
    BadSignature,
    Caller,
    Scope,
    allows,
    sign_request,
    verify_request,
)

NOW = 1_764_000_000_000
KEYS = {"cell-1": b"k" * 32, "cell-0": b"o" * 32}
CALLER = Caller(tenant_id="tnt_a", actor="key:abc", scopes=("jobs:read", "jobs:write"), epoch=7)


def signed(kid: str = "cell-1") -> dict[str, str]:
    return sign_request(
        kid=kid, secret=KEYS[kid], now_ms=NOW, method="POST", target="/v1/jobs?a=1", caller=CALLER
    )


def verified(headers: dict[str, str], **changes: object) -> Caller:
    arguments: dict[str, object] = {"now_ms": NOW, "method": "POST", "target": "/v1/jobs?a=1"}
    return verify_request(keys=KEYS, headers=headers, **(arguments | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("kid", KEYS)
def test_what_was_signed_is_accepted(kid: str) -> None:
    for now in (NOW - SIGNATURE_TOLERANCE_MS, NOW, NOW + SIGNATURE_TOLERANCE_MS):
        assert verified(signed(kid), now_ms=now) == CALLER


@pytest.mark.parametrize(
    "changes",
    [
        {"now_ms": NOW + SIGNATURE_TOLERANCE_MS + 1},
        {"now_ms": NOW - SIGNATURE_TOLERANCE_MS - 1},
        {"method": "PUT"},
        {"target": "/v1/jobs"},
    ],
)
def test_another_request_or_time_is_not(changes: dict[str, object]) -> None:
    with pytest.raises(BadSignature):
        verified(signed(), **changes)


@pytest.mark.parametrize("name", [TENANT_HEADER, SCOPES_HEADER, EPOCH_HEADER, BODY_HASH_HEADER])
def test_every_header_is_covered(name: str) -> None:
    with pytest.raises(BadSignature):
        verified(signed() | {name: "1"})


_LATIN = st.text(st.characters(max_codepoint=255), max_size=40)


@given(st.sampled_from(["t", "sig", "kid"]), st.one_of(_LATIN, st.just("9" * 5000), st.just("\xe9" * 64)))
def test_nothing_but_a_refusal_comes_of_nonsense(part: str, text: str) -> None:
    """Header bytes are anybody's: an exception of another kind would be a 500 of ours."""
    parts = dict(p.split("=", 1) for p in signed()[SIGNATURE_HEADER].split(";")[1:])
    if parts[part] == text:
        return
    parts[part] = text
    headers = signed() | {SIGNATURE_HEADER: "v1;" + ";".join(f"{k}={v}" for k, v in parts.items())}
    with pytest.raises(BadSignature):
        verified(headers)


@pytest.mark.parametrize("epoch", ["", "-1", "1e3", "9" * 5000, "\u0663", "\xb2"])
def test_an_epoch_that_is_none_is_refused(epoch: str) -> None:
    with pytest.raises(BadSignature):
        verified(signed() | {EPOCH_HEADER: epoch})


def test_scopes() -> None:
    assert allows(["operator"], Scope.ADMIN)
    assert not allows(["operator"], Scope.INTERNAL)
    assert allows(["admin"], Scope.JOBS_READ)
    assert not allows(["admin"], Scope.OPERATOR)
    assert not allows(["admin"], Scope.INTERNAL)
    assert not allows(["jobs:read"], Scope.JOBS_WRITE)
    assert not allows([], Scope.JOBS_READ)
