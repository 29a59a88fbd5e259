"""N+1: whether a region can lose any one of its shared cells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.topology.chooser import Wish, choose_cell
from controlplane.topology.headroom import Candidate, raise_refused, spare


def _cell(name: str, **changes: object) -> Candidate:
    values: dict[str, object] = {
        "region": "a", "state": "OPEN", "dedicated": False, "capacity": 100, "promised": 0, "tenants": 0,
    }  # fmt: skip
    return Candidate(name=name, **{**values, **changes})  # type: ignore[arg-type]


WISH = Wish(region="a", runs_per_second=50)


def test_the_hardest_loss_is_told_with_its_numbers() -> None:
    loss = spare([_cell("c1", promised=300), _cell("c2", promised=150), _cell("c3", promised=100)])
    assert loss is not None
    assert (loss.cell, loss.promised, loss.room, loss.holds) == ("c1", 300, 550, True)
    loss = spare([_cell("c1", promised=300), _cell("c2", promised=150)])
    assert loss is not None
    assert not loss.holds
    assert loss.sentence == (
        "c1 could not be lost: 300 runs/s are promised on c1, and the others have room for 250"
    )


def test_one_cell_cannot_be_lost_whatever_is_placed() -> None:
    assert spare([_cell("c1", promised=300)]) is None
    idle = [
        _cell("c1", promised=300),
        _cell("new", state="CORDONED"),
        _cell("own", dedicated=True, promised=9),
    ]
    assert spare(idle) is None
    assert choose_cell(WISH, idle, beside=idle).cell == "c1"


def test_tenants_of_a_cordoned_cell_need_room_and_it_has_none() -> None:
    loss = spare([_cell("c1", promised=10), _cell("shut", state="CORDONED", promised=20)])
    assert loss is not None
    assert (loss.cell, loss.promised, loss.room) == ("c1", 10, 0)


def test_a_placement_that_takes_the_last_spare_is_refused_with_the_numbers() -> None:
    cells = [_cell("c1", promised=190), _cell("c2", promised=180)]
    choice = choose_cell(WISH, cells, beside=cells)
    assert (choice.cell, choice.unspared) == (None, True)
    assert dict(choice.refused) == {
        "c1": "with it c1 could not be lost: 240 runs/s are promised on c1, and the others have room for 220",
        "c2": "with it c1 could not be lost: 190 runs/s are promised on c1, and the others have room for 170",
    }
    overridden = choose_cell(WISH, cells, beside=cells, override=True)
    assert (overridden.cell, overridden.overridden) == ("c2", True)
    assert overridden.told()["n_plus_one"] == {"holds": False, "cell": "c1", "promised": 190, "room": 170}
    # Where it cannot be placed for want of room, nobody can override.
    full = [_cell("c1", promised=400), _cell("c2", promised=399)]
    assert choose_cell(WISH, full, beside=full, override=True).cell is None


def test_dedicated_cells_stand_aside() -> None:
    cells = [_cell("c1", promised=399), _cell("c2", promised=399), _cell("own", dedicated=True)]
    own = choose_cell(Wish(region="a", runs_per_second=50, dedicated=True), cells, beside=cells)
    assert own.cell == "own"
    assert raise_refused(cells, cell="own", before=0, after=100) == []
    assert raise_refused(cells, cell="own", before=0, after=101) == [
        "one tenant's 101 runs/s exceed the capacity of own, 100",
        "101 runs/s would be promised on own, which may promise 100",
    ]


def test_less_may_always_be_promised() -> None:
    cells = [_cell("c1", promised=900), _cell("c2", promised=900)]
    assert raise_refused(cells, cell="c1", before=100, after=99) == []
    assert len(raise_refused(cells, cell="c1", before=100, after=101)) == 3


@given(
    st.lists(
        st.builds(
            Candidate,
            name=st.text("abc", min_size=1, max_size=4),
            region=st.just("a"),
            state=st.sampled_from(["OPEN", "CORDONED", "DRAINING"]),
            dedicated=st.booleans(),
            capacity=st.integers(1, 100),
            promised=st.integers(0, 500),
            tenants=st.integers(0, 3),
        ),
        unique_by=lambda c: c.name,
    )
)
def test_what_is_placed_leaves_room_for_every_loss(cells: list[Candidate]) -> None:
    choice = choose_cell(WISH, cells, beside=cells)
    assert choice == choose_cell(WISH, cells[::-1], beside=cells[::-1])
    if choice.cell is None or choice.spare is None:
        return
    after = [c.with_more(50) if c.name == choice.cell else c for c in cells]
    for lost in (c for c in after if not c.dedicated):
        assert lost.promised <= sum(c.room for c in after if c is not lost and not c.dedicated)
