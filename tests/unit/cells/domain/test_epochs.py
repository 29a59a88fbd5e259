"""Epochs of runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cells.contract import EPOCH_STRIDE
from cells.domain.epochs import next_epoch


@given(previous=st.integers(0, 2**52), owner=st.integers(1, 2**30))
def test_a_claim_outranks_all_before_it(previous: int, owner: int) -> None:
    epoch = next_epoch(previous, owner)
    assert epoch > previous
    assert epoch >= owner * EPOCH_STRIDE


@given(claims=st.integers(1, 50), owner=st.integers(1, 2**30))
def test_a_new_owner_outranks_every_claim_of_the_old(claims: int, owner: int) -> None:
    old = 0
    for _ in range(claims):
        old = next_epoch(old, owner)
    assert old == owner * EPOCH_STRIDE + claims - 1
    # The new owner may never have seen those claims.
    assert next_epoch(0, owner + 1) > old
