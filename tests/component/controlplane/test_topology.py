"""Cells by the operators' API: headroom, draining and filling, retiring; suggestions; the maps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.errors import Conflicting
from controlplane.events.models import AuditEvent
from controlplane.identity import TENANT, encode
from controlplane.moves.models import TenantMove
from controlplane.ownership import OwnershipStore
from controlplane.tenants.actions.tenants import create_tenant, set_quotas
from controlplane.tenants.models import Tenant
from controlplane.topology.actions.cells import cordon_cell, open_cell, set_cell_state
from controlplane.topology.actions.relocations import (
    pause_relocation,
    plan_relocation,
    resume_relocation,
    start_drain,
    start_fill,
    stop_relocation,
)
from controlplane.topology.models import (
    Cell,
    CellState,
    Placement,
    Relocation,
    RelocationKind,
    RelocationState,
    Site,
)
from controlplane.topology.overview import hot_tenants, map_of
from controlplane.topology.owners import ownership_map
from controlplane.topology.relocating import go_on, progress_of
from tests.component.controlplane.contents import contents
from tests.component.controlplane.factories import ACTOR, REASON, CellFactory, TenantFactory

pytestmark = pytest.mark.usefixtures("control")
WHO: dict[str, Any] = {"actor": ACTOR, "reason": REASON}


def _tenant(cell: Cell, runs: int, **more: Any) -> Tenant:
    return TenantFactory(cell=cell.name, quotas={"job_runs_per_second": runs}, **more)


def _moved(move: TenantMove) -> None:
    """As a move that is over leaves it."""
    Placement.objects.filter(tenant=move.tenant_id).update(cell=move.destination_id, state="ACTIVE")
    TenantMove.objects.filter(pk=move.pk).update(state="DONE", new_epoch=1, finished_at=timezone.now())


def _open_moves() -> list[TenantMove]:
    return list(TenantMove.objects.exclude(state__in=["DONE", "ABORTED"]).order_by("created_at"))


# --- headroom ----------------------------------------------------------------------------
def test_a_placement_that_takes_the_last_spare_is_refused_and_can_be_overridden() -> None:
    first, second = CellFactory(capacity_runs_per_second=100), CellFactory(capacity_runs_per_second=100)
    for cell in (first, second):
        for _ in range(2):
            _tenant(cell, 95)
    with pytest.raises(Conflicting) as refused:
        TenantFactory(slug="more", quotas={"job_runs_per_second": 50})
    assert "could not be lost: 240 runs/s are promised on" in str(refused.value)
    assert "room for 210" in str(refused.value)
    assert "an operator may override this" in str(refused.value)
    made = create_tenant(
        slug="more", name="More", home_region="here", quotas={"job_runs_per_second": 50}, override=True, **WHO
    )
    placement = Placement.objects.get(tenant=made)
    assert placement.explanation["overridden"] is True
    assert placement.explanation["n_plus_one"]["holds"] is False
    (event,) = AuditEvent.objects.filter(action="tenant.place", tenant_id=made.id)
    assert event.after is not None
    assert event.after["overridden"] is True


def test_a_raise_beyond_headroom_is_refused_with_all_reasons() -> None:
    cell = CellFactory(capacity_runs_per_second=100)
    tenant = _tenant(cell, 90)
    _tenant(cell, 90)
    before = contents()
    with pytest.raises(Conflicting) as refused:
        set_quotas(tenant_id=tenant.id, quotas={"job_runs_per_second": 400}, **WHO)
    assert "one tenant's 400 runs/s exceed the capacity" in str(refused.value)
    assert "490 runs/s would be promised" in str(refused.value)
    assert contents() == before
    set_quotas(tenant_id=tenant.id, quotas={"job_runs_per_second": 400}, override=True, **WHO)
    event = AuditEvent.objects.filter(action="tenant.set_quotas").get()
    assert event.after is not None
    assert event.after["job_runs_per_second"] == 400
    assert len(event.after["overridden"]) == 2
    # Less is never refused, however full it is.
    set_quotas(tenant_id=tenant.id, quotas={"job_runs_per_second": 399}, **WHO)


# --- states ------------------------------------------------------------------------------
def test_a_cell_is_retired_only_when_nothing_of_it_is_left() -> None:
    cell, other = CellFactory(), CellFactory()
    _tenant(cell, 10)
    cordon_cell(name=cell.name, **WHO)
    with pytest.raises(Conflicting, match="1 tenants still live"):
        set_cell_state(name=cell.name, state=CellState.RETIRED, **WHO)
    empty = other
    cordon_cell(name=empty.name, **WHO)
    # It was seen at work, and cannot be asked now what it has metered.
    Cell.objects.filter(pk=empty.name).update(status_at=timezone.now())
    with pytest.raises(Conflicting, match="whether its meters are sealed is not known"):
        set_cell_state(name=empty.name, state=CellState.RETIRED, **WHO)
    Cell.objects.filter(pk=empty.name).update(status_at=None)
    set_cell_state(name=empty.name, state=CellState.RETIRED, **WHO)
    with pytest.raises(Conflicting, match="RETIRED cell cannot become"):
        open_cell(name=empty.name, **WHO)


def test_a_cell_that_was_added_is_opened_once_it_was_ready() -> None:
    cell = CellFactory()
    cordon_cell(name=cell.name, **WHO)
    Site.objects.filter(cell=cell).update(database="127.0.0.1:1/cell")
    with pytest.raises(Conflicting, match="was never seen ready"):
        open_cell(name=cell.name, **WHO)
    Site.objects.filter(cell=cell).update(ready_at=timezone.now())
    assert open_cell(name=cell.name, **WHO).state == CellState.OPEN


# --- draining ----------------------------------------------------------------------------
def test_a_drain_moves_every_tenant_at_its_pace() -> None:
    cell, _ = CellFactory(), CellFactory()
    tenants = [_tenant(cell, runs) for runs in (30, 50, 10)]
    plan = plan_relocation(cell=cell.name, kind=RelocationKind.DRAIN)
    assert [step.runs_per_second for step in plan.steps] == [50, 30, 10]
    made = start_drain(cell=cell.name, at_once=2, **WHO)
    assert Cell.objects.get(pk=cell.name).state == CellState.DRAINING
    go_on(made)
    go_on(made)  # beat may look at any time
    assert [m.tenant_id for m in _open_moves()] == [tenants[1].id, tenants[0].id]
    told = progress_of(made)
    assert (told.total, told.moved, told.moving, told.left) == (3, 0, 2, 1)
    paused = pause_relocation(relocation_id=made.id, **WHO)
    _moved(_open_moves()[0])
    go_on(paused)
    assert len(_open_moves()) == 1
    resumed = resume_relocation(relocation_id=made.id, at_once=1, **WHO)
    go_on(resumed)
    assert len(_open_moves()) == 1  # one is under way, and that is the pace now
    _moved(_open_moves()[0])
    go_on(resumed)
    (last,) = _open_moves()
    assert last.tenant_id == tenants[2].id
    assert "2 of 3 moved" in Relocation.objects.get(pk=made.pk).why
    _moved(last)
    go_on(resumed)
    over = Relocation.objects.get(pk=made.pk)
    assert (over.state, over.why) == ("DONE", f"{cell.name} is empty; it can be retired")
    assert over.finished_at is not None
    set_cell_state(name=cell.name, state=CellState.RETIRED, **WHO)


def test_a_drain_without_room_is_refused_with_the_numbers_or_leaves_who_does_not_fit() -> None:
    cell = CellFactory(capacity_runs_per_second=100)
    stays, goes = _tenant(cell, 90), _tenant(cell, 15)
    small = CellFactory(capacity_runs_per_second=20)
    with pytest.raises(Conflicting, match=r"1 of 2 tenants, with 90 runs/s, fit on no other cell"):
        start_drain(cell=cell.name, **WHO)
    assert Cell.objects.get(pk=cell.name).state == CellState.OPEN
    made = start_drain(cell=cell.name, override=True, **WHO)
    go_on(made)
    (move,) = _open_moves()
    assert (move.tenant_id, move.destination_id) == (goes.id, small.name)
    found = Relocation.objects.get(pk=made.pk)
    assert list(found.stuck) == [stays.public_id]
    _moved(move)
    go_on(made)
    CellFactory(capacity_runs_per_second=100)  # room is made
    go_on(made)
    assert [m.tenant_id for m in _open_moves()] == [stays.id]
    assert Relocation.objects.get(pk=made.pk).stuck == {}


def test_a_drain_that_is_ended_leaves_the_cell_cordoned_and_opening_ends_one() -> None:
    cell, _ = CellFactory(), CellFactory()
    _tenant(cell, 10)
    made = start_drain(cell=cell.name, **WHO)
    with pytest.raises(Conflicting, match="being drained or filled already"):
        start_drain(cell=cell.name, **WHO)
    stop_relocation(relocation_id=made.id, **WHO)
    assert Cell.objects.get(pk=cell.name).state == CellState.CORDONED
    with pytest.raises(Conflicting, match="STOPPED relocation cannot resume"):
        resume_relocation(relocation_id=made.id, **WHO)
    again = start_drain(cell=cell.name, **WHO)
    open_cell(name=cell.name, **WHO)
    assert Relocation.objects.get(pk=again.pk).state == RelocationState.STOPPED
    go_on(again)
    assert _open_moves() == []


# --- filling -----------------------------------------------------------------------------
def test_a_new_cell_is_filled_until_it_is_about_as_full() -> None:
    old = CellFactory(capacity_runs_per_second=100)
    for _ in range(4):
        _tenant(old, 50)
    new = CellFactory(capacity_runs_per_second=100)
    plan = plan_relocation(cell=new.name, kind=RelocationKind.FILL)
    assert [step.runs_per_second for step in plan.steps] == [50, 50]
    made = start_fill(cell=new.name, at_once=5, **WHO)
    go_on(made)
    moves = _open_moves()
    assert [(m.source_id, m.destination_id) for m in moves] == [(old.name, new.name)] * 2
    go_on(made)
    assert len(_open_moves()) == 2
    for move in moves:
        _moved(move)
    go_on(made)
    assert Relocation.objects.get(pk=made.pk).state == RelocationState.DONE
    with pytest.raises(Conflicting, match="would even it out"):
        start_fill(cell=new.name, **WHO)


# --- measured use ------------------------------------------------------------------------
def _load(cell: Cell, *used: tuple[Tenant, float]) -> None:
    tenants = [
        {
            "tenant_id": encode(TENANT, tenant.id),
            "runs_per_second": rate,
            "busiest_runs_per_second": rate * 2,
            "lag_max_ms": 5,
        }
        for tenant, rate in used
    ]
    status = {
        "lag_ms": 7,
        "load": {"minutes": 5, "runs_per_second": sum(rate for _, rate in used), "tenants": tenants},
    }
    Cell.objects.filter(pk=cell.name).update(status=status, status_at=timezone.now(), status_error="")


def test_a_hot_cell_suggests_who_should_move_and_why() -> None:
    hot, cool = CellFactory(capacity_runs_per_second=100), CellFactory(capacity_runs_per_second=100)
    busy, idle = _tenant(hot, 50, slug="busy"), _tenant(hot, 50, slug="idle")
    _load(hot, (busy, 35.0), (idle, 30.0))
    assert hot_tenants() == []  # what the other cell carries is not known
    _load(cool)
    (found,) = hot_tenants()
    assert (found.tenant_id, found.source, found.destination) == (busy.public_id, hot.name, cool.name)
    assert f"{hot.name} runs at 65% of its 100 runs/s; busy used 35.0 of them (35%)" in found.why
    assert f"{cool.name} runs at 0% of its 100 and would at 35%" in found.why
    Cell.objects.update(status_at=timezone.now() - timedelta(minutes=5))
    assert hot_tenants() == []


def test_a_tenant_that_takes_most_of_a_cell_is_shown_one_of_its_own() -> None:
    hot = CellFactory(capacity_runs_per_second=100)
    big = _tenant(hot, 90, slug="big")
    _load(hot, (big, 80.0))
    (found,) = hot_tenants()
    assert (found.destination, "it wants a cell of its own; none is free" in found.why) == (None, True)
    own = CellFactory(kind="DEDICATED", capacity_runs_per_second=100)
    (found,) = hot_tenants()
    assert found.destination == own.name


def test_the_map_says_what_is_promised_used_and_spare() -> None:
    first, second = CellFactory(), CellFactory()
    tenant = _tenant(first, 100)
    _load(first, (tenant, 12.5))
    (region,) = map_of()
    assert region.spare is not None
    assert region.spare.holds
    views = {view.cell.name: view for view in region.cells}
    assert (views[first.name].used, views[first.name].lag_ms, views[first.name].seen.promised) == (
        12.5,
        7,
        100,
    )
    assert views[second.name].used is None


# --- ownership ---------------------------------------------------------------------------
def test_the_ownership_map_names_who_does_not_agree(ownership: OwnershipStore) -> None:
    cell = CellFactory()
    tenant = _tenant(cell, 10)
    (owned,) = ownership_map(cell=cell.name)
    assert (owned.owner_region, owned.epoch, owned.tenants) == ("here", cell.ownership_epoch, 1)
    assert (owned.drift, owned.differences) == ([], [])
    assert "the cell does not answer" in owned.away
    assert not owned.agreed
    held = ownership.tenant(tenant.id)
    assert held is not None
    taken = ownership.claim_tenant(tenant.id, cell="elsewhere", expected=held.epoch)
    (owned,) = ownership_map(cell=cell.name)
    (difference,) = owned.differences
    assert difference.tenant_id == tenant.public_id
    assert difference.store == f"elsewhere, epoch {taken.epoch}"
    assert difference.why == "we have recorded that it lives here, the store says otherwise"
    row = ownership.cell(cell.name)
    assert row is not None
    ownership.claim_cell(cell.name, region="there", expected=row.epoch)
    (owned,) = ownership_map(cell=cell.name)
    assert owned.drift[0] == "the store says there owns it, its primary site is in here"
