"""The chooser: never a cell that does not fit, always a reason."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.topology.chooser import OVERSUBSCRIPTION, Candidate, Wish, choose_cell


def _cell(name: str, **changes: object) -> Candidate:
    values: dict[str, object] = {
        "region": "a", "state": "OPEN", "dedicated": False, "capacity": 1_000, "promised": 0, "tenants": 0,
    }  # fmt: skip
    return Candidate(name=name, **{**values, **changes})  # type: ignore[arg-type]


WISH = Wish(region="a", runs_per_second=100)


def test_the_cell_with_most_room() -> None:
    choice = choose_cell(
        WISH, [_cell("c1", promised=500), _cell("c2", promised=400), _cell("c3", promised=600)]
    )
    assert choice.cell == "c2"
    assert choice.why == "c2: open in a, 3500 runs/s of promises left afterwards, most of 3"


def test_equals_are_settled_by_name() -> None:
    assert choose_cell(WISH, [_cell("b"), _cell("a")]).cell == "a"


def test_every_refusal_has_its_reason() -> None:
    choice = choose_cell(
        WISH,
        [
            _cell("closed", state="CORDONED"),
            _cell("far", region="b"),
            _cell("full", promised=OVERSUBSCRIPTION * 1_000 - 99),
            _cell("kept", dedicated=True),
            _cell("small", capacity=99),
        ],
    )
    assert choice.cell is None
    assert choice.why == "no cell in a takes 100 runs/s"
    assert dict(choice.refused) == {
        "closed": "cordoned",
        "far": "in b",
        "full": "3901 of 4000 runs/s are promised",
        "kept": "kept for one tenant",
        "small": "one tenant's 100 runs/s exceed its capacity of 99",
    }


def test_a_dedicated_tenant_is_alone() -> None:
    wish = Wish(region="a", runs_per_second=100, dedicated=True)
    cells = [_cell("shared"), _cell("taken", dedicated=True, tenants=1), _cell("own", dedicated=True)]
    assert choose_cell(wish, cells).cell == "own"
    assert choose_cell(wish, cells[:2]).cell is None


def test_a_dedicated_cell_promises_no_more_than_it_has() -> None:
    wish = Wish(region="a", runs_per_second=1_001, dedicated=True)
    assert choose_cell(wish, [_cell("own", dedicated=True)]).cell is None


cells = st.lists(
    st.builds(
        Candidate,
        name=st.text("abc", min_size=1, max_size=4),
        region=st.sampled_from("ab"),
        state=st.sampled_from(["OPEN", "CORDONED", "DRAINING"]),
        dedicated=st.booleans(),
        capacity=st.integers(1, 100),
        promised=st.integers(0, 500),
        tenants=st.integers(0, 3),
    ),
    unique_by=lambda c: c.name,
)


@given(
    st.builds(
        Wish, region=st.sampled_from("ab"), runs_per_second=st.integers(1, 120), dedicated=st.booleans()
    ),
    cells,
)
def test_what_is_chosen_fits_and_the_order_does_not_matter(wish: Wish, cells: list[Candidate]) -> None:
    choice = choose_cell(wish, cells)
    assert choice == choose_cell(wish, cells[::-1])
    assert {name for name, _ in choice.refused} <= {c.name for c in cells}
    if choice.cell is None:
        assert len(choice.refused) == len(cells)
        return
    (cell,) = [c for c in cells if c.name == choice.cell]
    assert (cell.region, cell.state, cell.dedicated) == (wish.region, "OPEN", wish.dedicated)
    assert wish.runs_per_second <= cell.capacity
    assert cell.promised + wish.runs_per_second <= cell.capacity * OVERSUBSCRIPTION
    assert not (wish.dedicated and cell.tenants)
