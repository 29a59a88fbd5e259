"""Tasks among pollers: all that can be given is given, and nobody gets much more than another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cells.domain.sharing import shares


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(0, 400))
def test_shares(wanted: list[int], available: int) -> None:
    given_ = shares(wanted, available)
    assert sum(given_) == min(available, sum(wanted))
    assert all(0 <= got <= want for got, want in zip(given_, wanted, strict=True))
    # Who got less than another by more than one had all that was asked for.
    most = max(given_, default=0)
    assert all(got == want for got, want in zip(given_, wanted, strict=True) if got < most - 1)


def test_the_first_ones_get_what_cannot_be_divided() -> None:
    assert shares([5, 5, 5], 4) == [2, 1, 1]
    assert shares([1, 10, 10], 9) == [1, 4, 4]
