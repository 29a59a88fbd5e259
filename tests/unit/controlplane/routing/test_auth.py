"""Who a request speaks for."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.routing.auth import Principal, authenticate, key_id_of
from controlplane.routing.refusal import Refusal
from controlplane.routing.table import Key, Snapshot, Table

LIVE = "ch_live_abcdefghijklmnop_" + "s" * 43
OPERATOR = "ch_op_qrstuvwxyz234567_" + "t" * 43
NOBODYS = "ch_live_nobodysnobodysno_" + "u" * 43


def _key(text: str, tenant: str | None, *scopes: str, expires: int | None = None) -> Key:
    return Key(
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        tenant_id=tenant,
        scopes=scopes,
        expires_at_ms=expires,
    )


TABLE = Table(
    Snapshot(
        cursor="1",
        keys={
            "abcdefghijklmnop": _key(LIVE, "tnt_1", "jobs:write", expires=1000),
            "qrstuvwxyz234567": _key(OPERATOR, None, "operator"),
            "nobodysnobodysno": _key(NOBODYS, None, "jobs:read"),
        },
    )
)


def ask(header: str | None, **changes: Any) -> Principal:
    asked: dict[str, Any] = {
        "authorization": [] if header is None else [header.encode("latin-1", "replace")],
        "tenant_header": [],
        "method": "GET",
        "now_ms": 999,
        "stale": False,
        **changes,
    }
    return authenticate(TABLE, **asked)


def refused(header: str | None, **changes: Any) -> int:
    with pytest.raises(Refusal) as caught:
        ask(header, **changes)
    return caught.value.status


def test_a_key_speaks_for_its_tenant() -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        principal = ask(f"{scheme} {LIVE}", tenant_header=[b"tnt_1"])
        assert (principal.tenant_id, principal.actor) == ("tnt_1", "key:abcdefghijklmnop")
        assert not principal.operator


def test_what_is_no_known_key_is_401() -> None:
    for text in (
        None,
        "",
        "Bearer",
        f"Basic {LIVE}",
        f"Bearer {LIVE}x",
        f"Bearer {LIVE[:-1]}",
        "Bearer " + "a" * 999,
    ):
        assert refused(text) == 401
    assert refused(None, authorization=[f"Bearer {LIVE}".encode()] * 2) == 401
    assert refused(f"Bearer {LIVE}", now_ms=1000) == 401  # expires at its instant


def test_another_tenant_is_403_and_two_are_400() -> None:
    assert refused(f"Bearer {LIVE}", tenant_header=[b"tnt_2"]) == 403
    assert refused(f"Bearer {LIVE}", tenant_header=[b"tnt_1", b"tnt_2"]) == 400
    assert refused(f"Bearer {NOBODYS}") == 403


def test_an_operator_may_name_any_tenant_or_none() -> None:
    assert ask(f"Bearer {OPERATOR}").tenant_id == ""
    named = ask(f"Bearer {OPERATOR}", tenant_header=[b"tnt_2"])
    assert (named.tenant_id, named.operator) == ("tnt_2", True)


def test_an_old_table_vouches_for_no_privileged_write() -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "ODD"):
        assert refused(f"Bearer {OPERATOR}", method=method, stale=True) == 503
        assert ask(f"Bearer {LIVE}", method=method, stale=True).tenant_id == "tnt_1"
    assert ask(f"Bearer {OPERATOR}", method="GET", stale=True).operator


@given(st.text(alphabet=st.characters(max_codepoint=255)))
def test_nothing_else_is_ever_let_in(text: str) -> None:
    assert refused(text) == 401
    assert refused("Bearer " + text) == 401


@given(st.text())
def test_key_ids_are_found_or_not(text: str) -> None:
    found = key_id_of(text)
    assert found is None or found in text.split("_")


def test_an_admin_key_keeps_making_jobs_from_an_old_table_and_no_more() -> None:
    table = Table(Snapshot(cursor="1", keys={"abcdefghijklmnop": _key(LIVE, "tnt_1", "admin")}))
    found = authenticate(
        table,
        authorization=[f"Bearer {LIVE}".encode()],
        tenant_header=[],
        method="POST",
        now_ms=1,
        stale=True,
    )
    assert {"jobs:write", "jobs:trigger", "jobs:read"} <= set(found.scopes)
    assert {"admin", "targets:approve", "operator", "internal"}.isdisjoint(found.scopes)
    assert found.tenant_id == "tnt_1"
