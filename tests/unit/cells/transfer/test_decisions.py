"""What a side of a move decides by itself, and what both cells derive alike."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from cells.contract import MoveOrder, MoveSide, MoveVerb, cells_key
from cells.domain import ids
from cells.ports import Conflict
from cells.transfer.destination import HORIZON, spans
from cells.transfer.keeper import _verb
from cells.transfer.peers import Settled
from cells.transfer.steps import password, tenant_of


@pytest.mark.parametrize(
    ("side", "home", "verb"),
    [
        (MoveSide.SOURCE, "here", MoveVerb.ABORT),
        (MoveSide.SOURCE, "there", MoveVerb.DEPART),
        (MoveSide.DESTINATION, "here", MoveVerb.ACTIVATE),
        (MoveSide.DESTINATION, "there", None),  # the source goes back, or the driver gives up
    ],
)
def test_where_the_tenant_lives_says_what_a_side_does(
    side: MoveSide, home: str, verb: MoveVerb | None
) -> None:
    assert _verb(side, Settled(cell=home, epoch=9), "here") == (verb, 9)


def test_both_cells_derive_the_same_and_nobody_else_does() -> None:
    key, other = bytes(32), bytes(range(32))
    assert password(key, "ch_move_a_1") == password(key, "ch_move_a_1")
    made = {password(key, "ch_move_a_1"), password(key, "ch_move_a_2"), password(other, "ch_move_a_1")}
    assert len(made) == 3
    assert cells_key(key) != cells_key(other)
    assert cells_key(key).hex() not in made


def test_an_order_names_a_tenant() -> None:
    order = MoveOrder(tenant_id="tnt_x", attempt=1, epoch=1, peer="cell-2")
    with pytest.raises(Conflict, match="no tenant"):
        tenant_of(order)
    tenant = ids.fresh_id(now_ms=1, entropy=bytes(10))
    named = MoveOrder(tenant_id=ids.encode(ids.TENANT, tenant), attempt=1, epoch=1, peer="cell-2")
    assert tenant_of(named) == tenant


def test_coming_hours_are_loaded_span_by_span_without_a_gap() -> None:
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    found = spans(now)
    assert found[0][0] == now
    assert all(before[1] == after[0] for before, after in itertools.pairwise(found))
    assert found[-1][1] >= now + HORIZON
    assert max(end - start for start, end in found) <= timedelta(minutes=2)
