"""API keys as text."""

from __future__ import annotations

import hashlib

import pytest

from controlplane.tenants.keys import new_key, parse_key


@pytest.mark.parametrize("operator", [False, True])
def test_a_new_key_reads_back(operator: bool) -> None:
    key = new_key(operator=operator)
    assert parse_key(key.text) == key
    kind, live, key_id, secret = key.text.split("_")
    assert (kind, live) == ("ch", "op" if operator else "live")
    assert (len(key_id), len(secret)) == (16, 43)
    assert key.sha256 == hashlib.sha256(key.text.encode()).hexdigest()


def test_keys_differ() -> None:
    assert len({new_key().text for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ch_live_short_x",
        "ch_test_abcdefghij234567_" + "A" * 43,
        "ch_live_abcdefghij234567_" + "A" * 42,
        "ch_live_abcdefghij234567_" + "A" * 42 + "_",
        "ch_live_ABCDEFGHIJ234567_" + "A" * 43,
        "ch_live_abcdefghij234567_" + "A" * 43 + "\n",
    ],
)
def test_what_is_no_key(text: str) -> None:
    assert parse_key(text) is None
