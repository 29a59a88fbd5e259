"""Moves as the control plane keeps them: plans, one at a time, giving up, who may, what routers and cells are
told. Whole moves between real cells are the proof `move`."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from cells.contract import MoveSide, Scope
from controlplane.actors import Actor, service
from controlplane.errors import Conflicting, Invalid
from controlplane.events import routing_values
from controlplane.events.models import AuditEvent
from controlplane.moves import driving, settling
from controlplane.moves.actions import abort_move, start_move
from controlplane.moves.machine import HELD, State
from controlplane.moves.models import TenantMove
from controlplane.moves.planning import plan_move, tenant_to_move
from controlplane.ownership import OwnershipStore, Superseded
from controlplane.tenants.models import Tenant, User
from controlplane.topology.models import Cell, Placement, Site, Tenure
from tests.component.controlplane.factories import CellFactory, RegionFactory, TenantFactory
from tests.component.controlplane.signed import SignedClient, operator, tenant_admin
from tests.component.controlplane.standin import StandInCell

pytestmark = pytest.mark.django_db
ACTOR = service("tests")


@pytest.fixture
def tenant(control: None) -> Tenant:
    CellFactory()
    return TenantFactory()


@pytest.fixture
def other(tenant: Tenant) -> Cell:
    """A second cell."""
    return CellFactory()


def begin(tenant: Tenant, **more: Any) -> TenantMove:
    return start_move(tenant_id=tenant.id, actor=ACTOR, reason="a test", **more)


def test_a_plan_says_where_to_and_moves_nobody(tenant: Tenant, other: Cell) -> None:
    plan = plan_move(tenant_to_move(tenant.id))
    runs = tenant.quota.job_runs_per_second
    assert (plan.source, plan.destination) == (tenant.placement.cell_id, other.name)
    assert plan.promised == {plan.source: (runs, 0), other.name: (0, runs)}
    assert not TenantMove.objects.exists()
    with pytest.raises(Invalid, match="lives on"):
        plan_move(tenant_to_move(tenant.id), cell=plan.source)
    with pytest.raises(Invalid, match="no cell"):
        plan_move(tenant_to_move(tenant.id), cell="nowhere")


def test_a_tenant_with_rows_in_one_region_alone_stays_and_is_told_why(control: None) -> None:
    name = CellFactory.name.function()
    with StandInCell(name, bytes(range(32))) as answering:
        CellFactory(name=name, url=answering.url)
        tenant = TenantFactory()
        CellFactory()
        answering.stores = [
            {"store": 1, "region": "east", "reachable": True, "jobs": 1200, "workflows": 3},
            {"store": 2, "region": "west", "reachable": False, "jobs": None, "workflows": None},
        ]
        with pytest.raises(Conflicting, match="east has 1,200 jobs and 3 workflows; west does not answer"):
            begin(tenant)
        answering.stores = []
        assert plan_move(tenant_to_move(tenant.id)).source == name
    assert not TenantMove.objects.exists()


def test_what_is_strict_does_not_move_to_a_cell_of_one_region(control: None) -> None:
    name = CellFactory.name.function()
    with StandInCell(name, bytes(range(32))) as answering:
        CellFactory(name=name, url=answering.url)
        tenant = TenantFactory()
        narrow = CellFactory()
        answering.strict = {"jobs": 1200, "workflows": 1}
        why = r"one region alone, .* STRICT \(1,200 jobs, 1 workflows\)"
        with pytest.raises(Invalid, match=f"{narrow.name} does not fit: .*{why}"):
            plan_move(tenant_to_move(tenant.id), cell=narrow.name)
        with pytest.raises(Conflicting, match=why):
            begin(tenant)
        wide = CellFactory()
        Site.objects.create(
            cell=wide, region=RegionFactory(name="there"), url="http://127.0.0.1:2", primary=False
        )
        plan = plan_move(tenant_to_move(tenant.id))
        assert plan.destination == wide.name
        assert "one region alone" in plan.refused[narrow.name]
        answering.strict = {"jobs": 0, "workflows": 0}
        Tenant.objects.filter(pk=tenant.id).update(default_region_policy="STRICT")
        with pytest.raises(Invalid, match="its default region policy"):
            plan_move(tenant_to_move(tenant.id), cell=narrow.name)
    assert not TenantMove.objects.exists()


def test_a_cell_that_does_not_fit_is_refused_with_its_reason(tenant: Tenant) -> None:
    small = CellFactory(capacity_runs_per_second=1)
    with pytest.raises(Invalid, match="exceed its capacity"):
        plan_move(tenant_to_move(tenant.id), cell=small.name)
    with pytest.raises(Conflicting, match="no cell in here"):
        begin(tenant)


def test_one_move_at_a_time(tenant: Tenant, other: Cell) -> None:
    move = begin(tenant, cell=other.name)
    assert (move.state, move.destination_id) == ("PREPARE", other.name)
    assert Placement.objects.get(tenant=tenant).state == "MOVING"
    with pytest.raises(Conflicting, match="already"):
        begin(tenant)
    event = AuditEvent.objects.get(action="tenant.move")
    assert (event.subject, event.after["cell"]) == (move.public_id, other.name)
    # Who is on the way counts as there.
    second = TenantFactory(cell=move.source_id)
    promised = plan_move(tenant_to_move(second.id), cell=other.name).promised[other.name]
    assert promised[0] == tenant.quota.job_runs_per_second


def test_it_can_be_given_up_until_it_is_handed_over(tenant: Tenant, other: Cell) -> None:
    move = begin(tenant)
    for state in State:
        TenantMove.objects.filter(pk=move.pk).update(state=state, abort_reason=None)
        if state in (State.PREPARE, State.COPY, State.CATCH_UP, State.BARRIER, State.SEAL):
            assert abort_move(move_id=move.id, actor=ACTOR, reason="no").abort_reason == "no"
        else:
            with pytest.raises(Conflicting):
                abort_move(move_id=move.id, actor=ACTOR, reason="no")


def test_what_was_not_begun_is_undone_without_the_cells(tenant: Tenant, other: Cell) -> None:
    move = begin(tenant)
    abort_move(move_id=move.id, actor=ACTOR, reason="changed our minds")
    assert driving.drive(move.id) is None
    move.refresh_from_db()
    assert (move.state, move.abort_reason) == ("ABORTED", "changed our minds")
    assert [s.event for s in move.steps.order_by("id")] == ["ABORT", "UNDONE"]
    assert Placement.objects.get(tenant=tenant).state == "ACTIVE"
    assert begin(tenant).state == "PREPARE"


def test_a_cell_that_is_away_is_waited_for(tenant: Tenant, other: Cell) -> None:
    move = begin(tenant)
    assert driving.drive(move.id) == driving._LONG_PAUSE
    move.refresh_from_db()
    assert move.state == "PREPARE"
    assert move.why.startswith("waits for a cell: ")
    assert move.holder is None


def test_routers_hold_requests_while_it_is_handed_over(tenant: Tenant, other: Cell) -> None:
    move = begin(tenant)
    for state in State:
        TenantMove.objects.filter(pk=move.pk).update(state=state)
        told = routing_values.tenants([tenant.public_id])[tenant.public_id]["state"]
        assert told == ("HANDOFF" if state in HELD else "ACTIVE"), state


class TestLeftAlone:
    """What a cell is told whose move nobody drives on."""

    def test_its_source_takes_the_tenant_back_and_a_late_claim_loses(
        self, tenant: Tenant, other: Cell, ownership: OwnershipStore
    ) -> None:
        move = begin(tenant)
        placed = Placement.objects.get(tenant=tenant)
        TenantMove.objects.filter(pk=move.pk).update(state="SEAL", owned_epoch=placed.epoch)
        ask = {"tenant_id": tenant.id, "move_id": move.id, "side": MoveSide.SOURCE, "cell": move.source_id}
        answer = settling.settle(**ask)
        assert answer.cell == move.source_id
        assert answer.epoch > placed.epoch
        with pytest.raises(Superseded):
            ownership.claim_tenant(tenant.id, cell=other.name, expected=placed.epoch)
        placed.refresh_from_db()
        assert (placed.cell_id, placed.epoch) == (move.source_id, answer.epoch)
        assert Tenure.objects.filter(tenant=tenant, until=None).get().epoch == answer.epoch
        assert settling.settle(**ask) == answer  # asked again: nothing new

    def test_where_the_row_names_the_destination_both_go_on(
        self, tenant: Tenant, other: Cell, ownership: OwnershipStore
    ) -> None:
        move = begin(tenant)
        placed = Placement.objects.get(tenant=tenant)
        TenantMove.objects.filter(pk=move.pk).update(state="HANDOFF", owned_epoch=placed.epoch)
        waiting = settling.settle(
            tenant_id=tenant.id, move_id=move.id, side=MoveSide.DESTINATION, cell=other.name
        )
        assert (waiting.cell, waiting.epoch) == (move.source_id, placed.epoch)  # nothing was claimed
        owned = ownership.claim_tenant(tenant.id, cell=other.name, expected=placed.epoch)
        for side, cell in ((MoveSide.SOURCE, move.source_id), (MoveSide.DESTINATION, other.name)):
            answer = settling.settle(tenant_id=tenant.id, move_id=move.id, side=side, cell=cell)
            assert (answer.cell, answer.epoch) == (other.name, owned.epoch)

    def test_only_the_cells_of_the_move_are_answered(self, tenant: Tenant, other: Cell) -> None:
        move = begin(tenant)
        body = {"tenant_id": tenant.public_id, "move_id": str(move.id), "side": "source"}
        path, secret = "/internal/moves/settle", bytes(range(32))
        cell = {"scopes": (Scope.INTERNAL,), "secret": secret, "sign_body": True}
        source = SignedClient(kid=move.source_id, **cell)
        assert source.post(path, body).json["cell"] == move.source_id
        assert SignedClient(kid=other.name, **cell).post(path, body).status == 404
        assert SignedClient(kid=move.source_id, **(cell | {"scopes": ()})).post(path, body).status == 403
        assert SignedClient(kid="nobody", **cell).post(path, body).status == 401
        assert source.post(path, body | {"move_id": str(uuid.uuid4())}).status == 404
        assert source.post(path, body | {"side": "top"}).status == 422


def test_the_api(tenant: Tenant, other: Cell) -> None:
    people = operator()
    plan = people.post("/v1/admin/moves", {"tenant_id": tenant.public_id, "dry_run": True})
    assert (plan.status, plan.json["destination"]) == (200, other.name)
    assert people.post("/v1/admin/moves", {"tenant_id": "x"}).status == 422
    assert people.post("/v1/admin/moves", {"tenant_id": tenant.public_id, "cell": "x"}).status == 422
    made = people.post("/v1/admin/moves", {"tenant_id": tenant.public_id, "reason": "room"})
    assert (made.status, made.json["state"]) == (202, "PREPARE")
    assert made.headers["Location"] == f"/v1/admin/moves/{made.json['move_id']}"
    assert people.post("/v1/admin/moves", {"tenant_id": tenant.public_id}).status == 409
    read = people.get(made.headers["Location"])
    assert [step["state"] for step in read.json["steps"]] == ["PREPARE"]
    for query in (f"tenant_id={tenant.public_id}", f"cell={other.name}", "state=PREPARE"):
        listed = people.get(f"/v1/admin/moves?{query}").json["items"]
        assert [move["move_id"] for move in listed] == [made.json["move_id"]]
    assert people.get("/v1/admin/moves?state=DONE").json["items"] == []
    given_up = people.post(f"{made.headers['Location']}:abort", {"reason": "no"})
    assert (given_up.status, given_up.json["abort_requested"]) == (202, True)
    assert people.get("/v1/admin/moves/mov_x").status == 404


def test_owners_watch_and_move_only_where_they_may(tenant: Tenant, other: Cell, settings: Any) -> None:
    owner, stranger = tenant_admin(tenant), tenant_admin(TenantFactory())
    assert owner.post("/v1/tenant/moves", {}).status == 403
    settings.OWNERS_MAY_MOVE = True
    assert owner.post("/v1/tenant/moves", {"dry_run": True}).json["destination"] == other.name
    move = owner.post("/v1/tenant/moves", {"reason": "ours"}).json["move_id"]
    assert owner.get(f"/v1/tenant/moves/{move}").json["state"] == "PREPARE"
    assert stranger.get(f"/v1/tenant/moves/{move}").status == 404
    assert stranger.post(f"/v1/tenant/moves/{move}:abort", {}).status == 404
    assert stranger.get("/v1/tenant/moves").json["items"] == []
    settings.OWNERS_MAY_MOVE = False
    assert owner.get("/v1/tenant/moves").json["items"][0]["move_id"] == move
    assert owner.post(f"/v1/tenant/moves/{move}:abort", {}).status == 403


def test_operators_plan_begin_watch_and_give_up(tenant: Tenant, other: Cell) -> None:
    staff = User.objects.create_user("op@example.com", "operator password", is_staff=True)
    client = Client()
    client.force_login(staff)
    moves = reverse("operators:moves")
    assert "No tenant was moved yet." in client.get(moves).content.decode()
    planned = client.get(moves, {"tenant": tenant.slug}).content.decode()
    assert f"Begin to move {tenant.slug}" in planned
    assert "runs/s now" in planned
    assert "There is no plan" in client.get(moves, {"tenant": "nobody"}).content.decode()
    begun = client.post(moves, {"tenant": tenant.slug, "cell": other.name, "reason": "room"})
    move = TenantMove.objects.get(tenant=tenant)
    assert begun.url == reverse("operators:move", args=[move.public_id])
    shown = client.get(begun.url)
    assert shown["Refresh"] == "2"
    assert "Give this move up" in shown.content.decode()
    asked = client.get(reverse("operators:move-abort", args=[move.public_id])).content.decode()
    assert f"stays on {move.source_id}" in asked
    client.post(reverse("operators:move-abort", args=[move.public_id]), {"reason": "no"})
    move.refresh_from_db()
    assert move.abort_reason == "no"
    driving.drive(move.id)
    assert "Refresh" not in client.get(begun.url)
    actors = set(AuditEvent.objects.filter(subject=move.public_id).values_list("actor", flat=True))
    assert actors == {staff.actor_name, "service:moves"}
    assert client.get(reverse("operators:move", args=["mov_x"])).status_code == 404


def test_the_lease_lets_one_drive(tenant: Tenant, other: Cell) -> None:
    move = begin(tenant)
    holder = uuid.uuid4()
    assert driving._lease(move.id, holder)
    assert driving.drive(move.id) is None
    with driving._renewed(move.id, holder):
        assert time.monotonic() > 0
    move.refresh_from_db()
    assert move.holder == holder


def test_an_actor_is_told(tenant: Tenant, other: Cell) -> None:
    somebody = Actor(name="user:somebody", operator=True, owner=True)
    move = start_move(tenant_id=tenant.id, actor=somebody, reason="room")
    assert (move.started_by, move.reason) == ("user:somebody", "room")


def test_owners_name_no_cell_of_another_kind(tenant: Tenant, other: Cell, settings: Any) -> None:
    own = CellFactory(kind="DEDICATED")
    settings.OWNERS_MAY_MOVE = True
    owner = tenant_admin(tenant)
    for more in ({}, {"dry_run": True}):
        refused = owner.post("/v1/tenant/moves", {"cell": own.name, **more})
        assert refused.status == 422, refused.json
        assert "kept for one tenant" in str(refused.json)
    assert begin(tenant, cell=own.name).destination_id == own.name, "operators may"


def test_a_dedicated_cell_is_given_once(tenant: Tenant, other: Cell) -> None:
    own = CellFactory(kind="DEDICATED")
    begin(tenant, cell=own.name)
    second = TenantFactory()
    with pytest.raises(Invalid, match="already has its tenant"):
        plan_move(tenant_to_move(second.id), cell=own.name)
    with pytest.raises(Conflicting, match="already has its tenant"):
        TenantFactory(dedicated=True)
