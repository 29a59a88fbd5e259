"""Plans of evacuations: who goes where, who stays and why, and what the regions carry then."""

from __future__ import annotations

from typing import Any

from controlplane.evacuations.keepers import SiteStatus
from controlplane.evacuations.planning import CellFacts, evacuation_plan, failback_plan
from controlplane.topology.headroom import Candidate


def _cell(
    name: str, owner: str = "east", *, regions: str = "east west north", promised: int = 100, **more: Any
) -> CellFacts:
    names = regions.split()
    standbys = [
        {"site": region, "state": "streaming", "behind_bytes": 10} for region in names if region != owner
    ]
    sites = {
        region: SiteStatus(region=region, act="FOLLOW", owner=owner, streaming=True, position=1_000)
        for region in names
    }
    if owner in sites:
        sites[owner] = SiteStatus(region=owner, act="OWN", owner=owner, owns=True, standbys=standbys)
    seen = Candidate(
        name=name, region="east", state="OPEN", dedicated=False, capacity=1_000, promised=promised, tenants=2
    )
    return CellFacts(seen=seen, owner=owner, epoch=7, sites=more.pop("sites", sites), **more)


def test_cells_spread_over_the_regions_that_carry_least() -> None:
    cells = [_cell("a"), _cell("b", promised=300), _cell("c", "west", promised=250)]
    plan = evacuation_plan("east", cells)
    assert [(s.cell, s.target, s.behind_bytes) for s in plan.steps] == [("b", "north", 10), ("a", "west", 10)]
    loads = {load.region: load for load in plan.loads}
    assert loads["east"].promised == (400, 0)
    assert loads["west"].promised == (250, 350)
    assert loads["north"].cells == (0, 1)
    assert plan.impossible is None


def test_who_has_no_site_elsewhere_or_none_that_follows_is_named_and_stays() -> None:
    alone = _cell("alone", regions="east", moves_to_stop=1)
    sites = {**_cell("x").sites, "west": SiteStatus(region="west", away="its keeper does not answer")}
    sites["north"] = SiteStatus(region="north", act="STRAYED", owner="east")
    stuck = _cell("stuck", sites=sites)
    busy = _cell("busy", busy="it takes part in the evacuation of west")
    plan = evacuation_plan("east", [alone, stuck, busy])
    why = {step.cell: step for step in plan.staying}
    assert why["alone"].nowhere
    assert "tenants have to be moved" in why["alone"].why
    assert "went on alone" in why["stuck"].why
    assert "its keeper does not answer" in why["stuck"].why
    assert "takes part" in why["busy"].why
    assert plan.impossible is not None
    assert "alone: " in plan.impossible


def test_evacuated_regions_take_nobody_and_an_operator_may_name_the_target() -> None:
    plan = evacuation_plan("east", [_cell("a")], passive={"north"})
    assert [step.target for step in plan.steps] == ["west"]
    plan = evacuation_plan("east", [_cell("a")], to={"a": "west"})
    assert [step.target for step in plan.steps] == ["west"]
    plan = evacuation_plan("east", [_cell("a")], to={"a": "south"})
    assert "no site in south" in plan.steps[0].why


def test_a_silent_owner_is_said_and_needs_an_override() -> None:
    sites = {**_cell("a").sites, "east": SiteStatus(region="east", away="its keeper does not answer")}
    sites["west"] = SiteStatus(region="west", act="FOLLOW", owner="east", position=2_000)
    plan = evacuation_plan("east", [_cell("a", sites=sites)])
    (step,) = plan.steps
    assert (step.target, step.dead, step.behind_bytes) == ("west", True, None)
    assert plan.refusal is not None
    assert "silent" in plan.refusal


def test_a_region_that_could_not_lose_a_cell_any_more_is_refused_with_the_numbers() -> None:
    held = [_cell("n1", "north", promised=1_500), _cell("n2", "north", promised=1_500)]
    plan = evacuation_plan("east", [_cell("a", promised=4_000), *held], to={"a": "north"})
    assert plan.refusal is None  # 4,000 fit into what two cells may promise besides
    plan = evacuation_plan("east", [_cell("a", promised=5_500), *held], to={"a": "north"})
    assert plan.refusal is not None
    assert "a could not be lost: 5500 runs/s" in plan.refusal


def test_failback_brings_home_what_was_made_there() -> None:
    cells = [_cell("a", "west"), _cell("b", "east"), _cell("c", "north")]
    plan = failback_plan("east", cells)
    assert [(s.cell, s.source, s.target) for s in plan.steps] == [
        ("a", "west", "east"),
        ("c", "north", "east"),
    ]
    nothing = failback_plan("west", cells)
    assert nothing.impossible == "no cell is to come back to west"
