"""A region is evacuated, with a crash on the way, failed back to, and its loss is rehearsed; all with real
clusters and keepers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.errors import Conflicting, Invalid
from controlplane.evacuations.actions import abort_evacuation, plan_evacuation, start_evacuation
from controlplane.evacuations.driving import drive
from controlplane.evacuations.machine import State, Whole
from controlplane.evacuations.models import EvacuatedCell, Evacuation
from controlplane.evacuations.steps import hand_over as hand_over_step
from controlplane.events.models import AuditEvent
from controlplane.ownership.postgres import migrate as migrate_ownership
from controlplane.regions.following import follow_owners
from controlplane.regions.pages import serving
from controlplane.regions.wishes import Refused, hand_over
from controlplane.rehearsals.actions import plan_rehearsal, start_rehearsal
from controlplane.rehearsals.driving import drive as rehearse
from controlplane.rehearsals.models import Rehearsal, Stage
from controlplane.topology.actions.cells import register_cell
from controlplane.topology.actions.regions import register_region
from controlplane.topology.actions.sites import register_site
from controlplane.topology.models import Cell, CellState, Site
from tests.component.controlplane.factories import ACTOR, REASON
from tests.component.controlplane.regions.kept import KEY, REGIONS, Kept, cell_store, three_regions
from tests.component.controlplane.standin import StandInCell
from tests.waiting import eventually_sync

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

_TENANT = """INSERT INTO tenants (tenant_id, state, ownership_epoch, config_version, config, told_state)
VALUES (%s, 'ACTIVE', %s, 1, '{}', 'ACTIVE')"""


@pytest.fixture
def kept(empty_database_url: str, valkey_url: str, control: None) -> Iterator[Kept]:
    """The cell's three sites, known to the control plane with their keepers' addresses."""
    migrate_ownership(empty_database_url)
    with three_regions(empty_database_url, valkey_url) as kept, ExitStack() as stack:
        cell = stack.enter_context(StandInCell("cell", KEY))
        cell.punctuality = {"due": 7, "began": 7, "once": 6, "repeated": 1, "refused": 1, "repeats": []}
        a = kept["a"]

        async def founded() -> None:
            async with cell_store(a):
                await asyncio.to_thread(eventually_sync, lambda: a.keeper.status.owns, timeout=60)

        asyncio.run(founded())
        kept["b"].start()
        kept["c"].start()
        register_region(name="a", actor=ACTOR, reason=REASON)
        register_cell(
            name="cell", region="a", url=cell.url, key=KEY, store=kept.store, actor=ACTOR, reason=REASON
        )
        for region in REGIONS:
            port = stack.enter_context(serving(kept[region].keeper, kept[region].settings))
            register_site(
                cell="cell", region=region, keeper_url=f"http://127.0.0.1:{port}", actor=ACTOR, reason=REASON
            )
        eventually_sync(lambda: kept.follow("a"), timeout=60)
        yield kept


def _driven(found: Evacuation, kept: Kept, until: Callable[[EvacuatedCell], bool]) -> EvacuatedCell:
    def there() -> EvacuatedCell | None:
        drive(found.id, store=kept.store)
        follow_owners(kept.store)
        row = found.cells.get()
        return row if until(row) else None

    row: EvacuatedCell = eventually_sync(there, timeout=90)
    return row


def test_a_region_is_evacuated_and_failed_back_to(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.rehearsals.watching.AFTER_SECONDS", 0)
    a, b = kept["a"], kept["b"]
    with pytest.raises(Refused, match="does not own"):
        hand_over(b.settings, kept.store.cell("cell"), to="c")
    with pytest.raises(Refused, match="no other site"):
        hand_over(a.settings, kept.store.cell("cell"), to="a")
    tenant = uuid.uuid4()
    a.execute(_TENANT, tenant, kept.store.claim_tenant(tenant, cell="cell", expected=None).epoch)

    plan = plan_evacuation(region="a", kind="EVACUATE", store=kept.store)
    assert [(s.cell, s.source, s.dead) for s in plan.going] == [("cell", "a", False)]
    wish = {"kind": "EVACUATE", "calm_seconds": 0, "store": kept.store, "actor": ACTOR, "reason": REASON}
    given_up = start_evacuation(region="a", to={"cell": "b"}, **wish)  # type: ignore[arg-type]
    with pytest.raises(Conflicting, match="takes part"):
        start_evacuation(region="a", **wish)  # type: ignore[arg-type]
    _driven(given_up, kept, lambda row: row.at is State.SETTLE)
    drive(given_up.id, store=kept.store)
    assert Cell.objects.get(pk="cell").state == CellState.CORDONED
    abort_evacuation(evacuation_id=given_up.id, actor=ACTOR, reason="too early")
    _driven(given_up, kept, lambda row: row.at is State.ABORTED)
    assert Cell.objects.get(pk="cell").state == CellState.OPEN
    given_up.refresh_from_db()
    assert given_up.at is Whole.ABORTED

    # The driver dies when it has asked the keeper, and before it has written that down; another goes on.
    evacuation = start_evacuation(region="a", to={"cell": "b"}, **wish)  # type: ignore[arg-type]
    row = _driven(evacuation, kept, lambda row: row.at is State.HAND_OVER)
    hand_over_step(row, kept.store)
    Evacuation.objects.filter(pk=evacuation.pk).update(
        holder=uuid.uuid4(), leased_until=timezone.now() - timedelta(hours=1)
    )
    row = _driven(evacuation, kept, lambda row: row.at is State.DONE)
    assert (row.target, row.lifts) == ("b", 0)
    assert kept.owner() is b
    assert b.execute("SELECT count(*) FROM tenants WHERE tenant_id = %s AND state = 'ACTIVE'", tenant) == [
        (1,)
    ]
    evacuation.refresh_from_db()
    assert evacuation.at is Whole.DONE
    assert Site.objects.get(cell="cell", primary=True).region_id == "b"
    assert Cell.objects.get(pk="cell").state == CellState.CORDONED  # the region stays passive
    # What had been the primary wrote nothing of the cell's beyond that, so it follows by itself.
    eventually_sync(lambda: kept.follow("b"), timeout=90)

    back = start_evacuation(region="a", **wish | {"kind": "FAIL_BACK"})  # type: ignore[arg-type]
    row = _driven(back, kept, lambda row: row.at is State.DONE)
    assert (row.source, row.target) == ("b", "a")
    assert kept.owner() is a
    assert Cell.objects.get(pk="cell").state == CellState.OPEN
    assert a.execute("SELECT count(*) FROM tenants WHERE tenant_id = %s", tenant) == [(1,)]
    _rehearse(kept)
    told = AuditEvent.objects.filter(action__startswith="evacuation.").values_list("action", flat=True)
    assert sorted(told) == sorted(
        [
            *("evacuation.start", "evacuation.abort", "evacuation.aborted"),
            *("evacuation.start", "evacuation.cell_handed_over", "evacuation.done"),
            *("evacuation.start", "evacuation.cell_handed_over", "evacuation.done"),
        ]
    )


def _rehearse(kept: Kept) -> None:
    """The region is cut off from its other sites, one of which takes over; the end comes by itself."""
    a = kept["a"]
    eventually_sync(lambda: kept.follow("a"), timeout=90)
    with pytest.raises(Invalid, match="/seconds"):
        start_rehearsal(region="a", seconds=5, store=kept.store, actor=ACTOR, reason=REASON)
    found = start_rehearsal(region="a", seconds=45, store=kept.store, actor=ACTOR, reason=REASON)
    # The leases of this test are shorter than real ones, and so is its cut.
    Rehearsal.objects.filter(pk=found.pk).update(
        cut_at=timezone.now(), until=timezone.now() + timedelta(seconds=14)
    )
    with pytest.raises(Conflicting, match="under way"):
        start_rehearsal(region="a", seconds=45, store=kept.store, actor=ACTOR, reason=REASON)

    def looked_at(stage: Stage) -> bool:
        rehearse(found.id, store=kept.store)
        found.refresh_from_db()
        return found.at is stage

    eventually_sync(lambda: looked_at(Stage.CUT), timeout=10)
    # Nothing is handed over to who does not follow, nor rehearsed.
    eventually_sync(lambda: not kept["b"].keeper.status.streaming, timeout=30)
    assert plan_rehearsal(region="a", store=kept.store).refusal is not None
    assert "cell" in (plan_evacuation(region="a", kind="EVACUATE", store=kept.store).impossible or "")
    eventually_sync(lambda: looked_at(Stage.COUNTING), timeout=150)
    owner = kept.owner()
    assert owner is not None
    assert owner is not a
    assert looked_at(Stage.DONE)
    (report,) = found.cells.values_list("report", flat=True)
    assert (report["owner_after"], report["due"], report["run_once"]) == (owner.settings.region, 7, 6)
    assert report["returned_as"] in ("FOLLOW", "STRAYED")
    assert 0 < report["let_go_seconds"] < report["rto_owner_seconds"] <= 14
    assert report["rpo_seconds"] >= 0
    assert report["rpo_bytes"] >= 0
