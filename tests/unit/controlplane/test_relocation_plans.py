"""Drains put everybody where there is room, the biggest first; fills end when cells are even."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.topology.headroom import Candidate
from controlplane.topology.relocation_plans import Resident, drain_plan, fill_plan


def _cells(*promised: int, capacity: int = 100) -> list[Candidate]:
    return [
        Candidate(
            name=f"c{n}",
            region="a",
            state="OPEN",
            dedicated=False,
            capacity=capacity,
            promised=runs,
            tenants=1,
        )
        for n, runs in enumerate(promised)
    ]


def _living(cell: str, *runs: int) -> list[Resident]:
    return [Resident(tenant_id=f"t{n}", cell=cell, runs_per_second=r) for n, r in enumerate(runs)]


def test_a_drain_says_where_everybody_goes_and_what_is_spare_then() -> None:
    plan = drain_plan("c0", _cells(60, 0, 10), _living("c0", 20, 40))
    assert [(s.tenant_id, s.destination) for s in plan.steps] == [("t1", "c1"), ("t0", "c2")]
    assert plan.refusal is None
    assert plan.before is not None
    assert plan.afterwards is not None
    assert (plan.before.cell, plan.afterwards.cell, plan.afterwards.promised) == ("c0", "c1", 40)


def test_who_fits_nowhere_is_named_with_the_numbers() -> None:
    plan = drain_plan("c0", _cells(150, 390), _living("c0", 90, 10, 50))
    assert [s.destination for s in plan.steps] == [None, None, "c1"]
    assert plan.refusal is not None
    assert plan.refusal.startswith(
        "2 of 3 tenants, with 140 runs/s, fit on no other cell (t0: c1: 390 of 400"
    )


def test_a_dedicated_tenant_goes_to_a_dedicated_cell() -> None:
    shared, own, free = (
        Candidate(
            name=name, region="a", state="OPEN", dedicated=name != "shared", capacity=100,
            promised=50 if name == "own" else 0, tenants=int(name == "own"),
        )
        for name in ("shared", "own", "free")
    )  # fmt: skip
    (step,) = drain_plan("own", [shared, own, free], _living("own", 50)).steps
    assert step.destination == "free"
    (step,) = drain_plan("own", [shared, own], _living("own", 50)).steps
    assert (step.destination, step.why) == (None, "shared: shared with others")


@given(st.lists(st.integers(1, 80), max_size=12), st.integers(0, 400), st.integers(0, 400))
def test_a_drain_never_promises_more_than_there_is(runs: list[int], first: int, second: int) -> None:
    cells = _cells(sum(runs), first, second)
    plan = drain_plan("c0", cells, _living("c0", *runs))
    assert sorted(step.tenant_id for step in plan.steps) == sorted(f"t{n}" for n in range(len(runs)))
    for cell in cells[1:]:
        came = sum(s.runs_per_second for s in plan.steps if s.destination == cell.name)
        assert came == 0 or cell.promised + came <= cell.limit


@given(st.lists(st.integers(1, 80), max_size=12), st.integers(0, 400))
def test_a_fill_evens_out_and_ends(runs: list[int], others: int) -> None:
    cells = _cells(0, sum(runs), others)
    plan = fill_plan("c0", cells, _living("c1", *runs))
    came = sum(step.runs_per_second for step in plan.steps)
    assert len({step.tenant_id for step in plan.steps}) == len(plan.steps)
    assert all(step.source == "c1" for step in plan.steps)
    # The last that came left its cell no emptier than this one has become.
    assert came <= sum(runs) - came or came == 0
