"""Suggestions: only from hot cells, only to cool ones, and never to a cell that would be hot then."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.topology.headroom import Candidate
from controlplane.topology.hot import HOT, Used, suggestions


def _cell(name: str, **changes: object) -> Candidate:
    values: dict[str, object] = {
        "region": "a", "state": "OPEN", "dedicated": False, "capacity": 100, "promised": 0, "tenants": 1,
    }  # fmt: skip
    return Candidate(name=name, **{**values, **changes})  # type: ignore[arg-type]


def _used(tenant: str, cell: str, used: float) -> Used:
    return Used(tenant_id=tenant, name=tenant, cell=cell, quota=50, used=used, busiest=used)


def test_the_busiest_move_until_the_cell_is_cool() -> None:
    cells = [_cell("hot"), _cell("cool"), _cell("cooler", capacity=200)]
    tenants = [_used("a", "hot", 30), _used("b", "hot", 25), _used("c", "hot", 20)]
    found = suggestions(cells, {"hot": 75, "cool": 10, "cooler": 10}, tenants)
    assert [(s.tenant_id, s.destination) for s in found] == [("a", "cooler")]


def test_a_cell_without_a_figure_is_no_destination_and_a_full_one_neither() -> None:
    tenants = [_used("a", "hot", 30), _used("b", "hot", 35)]
    assert suggestions([_cell("hot"), _cell("dark")], {"hot": 65}, tenants) == []
    full = _cell("full", promised=400)
    assert suggestions([_cell("hot"), full], {"hot": 65, "full": 0}, tenants) == []
    shut = _cell("shut", state="CORDONED")
    assert suggestions([_cell("hot"), shut], {"hot": 65, "shut": 0}, tenants) == []


def test_nobody_is_suggested_for_a_cell_of_its_own_kind_alone() -> None:
    own = _cell("own", dedicated=True)
    assert suggestions([own, _cell("cool")], {"own": 99, "cool": 0}, [_used("a", "own", 99)]) == []


@given(st.lists(st.floats(0, 50), max_size=8), st.floats(0, 120), st.floats(0, 120))
def test_no_suggestion_makes_another_cell_hot(used: list[float], second: float, third: float) -> None:
    cells = [_cell("c0"), _cell("c1"), _cell("c2")]
    load = {"c0": sum(used), "c1": second, "c2": third}
    tenants = [_used(f"t{n}", "c0", rate) for n, rate in enumerate(used)]
    found = suggestions(cells, load, tenants)
    assert sum(used) >= HOT * 100 or not found
    for cell in ("c1", "c2"):
        came = sum(s.used for s in found if s.destination == cell)
        assert came == 0 or load[cell] + came < HOT * 100 + 1e-6


def test_a_cell_of_ones_own_is_suggested_once() -> None:
    cells = [_cell("hot"), _cell("own", dedicated=True, tenants=0)]
    tenants = [_used("a", "hot", 60), _used("b", "hot", 55)]
    found = suggestions(cells, {"hot": 115, "own": 0}, tenants)
    assert [s.destination for s in found if s.destination == "own"] == ["own"]
