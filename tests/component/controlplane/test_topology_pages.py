"""Operators' pages of the topology: they say the numbers, and what is done is a use-case."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.identity import TENANT, encode
from controlplane.moves.models import TenantMove
from controlplane.tenants.models import User
from controlplane.topology.models import Cell, Relocation
from controlplane.topology.relocating import go_on
from tests.component.controlplane.factories import CellFactory, TenantFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(control: None) -> Client:
    staff = User.objects.create_user("op@example.com", "operator password", is_staff=True)
    client = Client()
    client.force_login(staff)
    return client


def _text(client: Client, path: str) -> str:
    answer = client.get(f"/admin/pages/{path}")
    assert answer.status_code == 200, (path, answer)
    return answer.content.decode()


def test_an_empty_map_teaches_the_first_step(client: Client) -> None:
    assert "makes the first one known" in _text(client, "topology/")
    assert "Nobody lives there." in _text(client, "placements/")
    assert "No cell is registered." in _text(client, "ownership/")


def test_the_map_the_placements_and_the_owners(client: Client) -> None:
    first = CellFactory()
    tenant = TenantFactory(slug="acme", cell=first.name)
    CellFactory(name="cell-second")
    shown = _text(client, "topology/")
    assert "any one cell may be lost: 100 runs/s are promised on" in shown
    assert "not known" in shown  # no cell has said anything yet
    placed = _text(client, f"placements/?cell={first.name}&q=acm")
    assert "acme" in placed
    assert "runs/s left afterwards" in placed
    assert "Nobody lives there." in _text(client, "placements/?cell=cell-second")
    owned = _text(client, "ownership/")
    assert "none: owned for good" in owned
    assert "the cell does not answer" in owned
    assert tenant.placement.cell_id == first.name


def test_a_suggested_move_is_begun_by_one_click(client: Client) -> None:
    hot, cool = CellFactory(capacity_runs_per_second=100), CellFactory(capacity_runs_per_second=100)
    busy = TenantFactory(slug="busy", cell=hot.name, quotas={"job_runs_per_second": 50})
    rate = {"tenant_id": encode(TENANT, busy.id), "runs_per_second": 35.0, "busiest_runs_per_second": 40.0}
    for cell, load in ((hot, {"runs_per_second": 65.0, "tenants": [rate]}),
                       (cool, {"runs_per_second": 0.0, "tenants": []})):  # fmt: skip
        status = {"lag_ms": 1, "load": load}
        Cell.objects.filter(pk=cell.name).update(status=status, status_at=timezone.now())
    shown = _text(client, "topology/")
    assert "busy used 35.0 of them (35%)" in shown
    assert "Move busy" in shown
    begun = client.post("/admin/pages/moves/", {"tenant": "busy", "cell": cool.name, "reason": "suggested"})
    move = TenantMove.objects.get(tenant=busy)
    assert begun.headers["Location"].endswith(f"/moves/{move.public_id}/")
    assert "nobody needs to move" in _text(client, "topology/")


def test_a_drain_is_planned_begun_paused_and_ended(client: Client) -> None:
    cell = CellFactory()
    TenantFactory(slug="acme", cell=cell.name)
    CellFactory()
    plan = _text(client, f"cells/{cell.name}/drain")
    assert "1, 100 runs/s promised" in plan
    assert "acme" in plan
    wrong = client.post(f"/admin/pages/cells/{cell.name}/drain", {"at_once": "x", "reason": "r"}, follow=True)
    assert "from 1 to 20" in wrong.content.decode()
    begun = client.post(f"/admin/pages/cells/{cell.name}/drain", {"at_once": "2", "reason": "old machine"})
    made = Relocation.objects.get()
    path = f"relocations/{made.public_id}/"
    assert begun.headers["Location"].endswith(path)
    go_on(made)
    page = client.get(f"/admin/pages/{path}")
    assert page.headers["Refresh"] == "3"
    assert "0 of 1 tenants" in page.content.decode()
    for verb, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("stop", "STOPPED")):
        client.post(f"/admin/pages/{path}", {"verb": verb, "at_once": "3", "reason": "r"})
        made.refresh_from_db()
        assert made.state == state
    assert made.at_once == 3
    assert Cell.objects.get(pk=cell.name).state == "CORDONED"
    assert "Refresh" not in client.get(f"/admin/pages/{path}").headers
    assert client.post(f"/admin/pages/{path}", {"verb": "explode"}).status_code == 404
    assert client.get("/admin/pages/relocations/rel_none/").status_code == 404
    assert client.get(f"/admin/pages/cells/{cell.name}/explode").status_code == 404


def test_a_plan_without_room_says_so_and_needs_an_override(client: Client) -> None:
    cell = CellFactory()
    TenantFactory(slug="acme", cell=cell.name)
    plan = _text(client, f"cells/{cell.name}/drain")
    assert "Even though some fit nowhere" in plan
    path = f"/admin/pages/cells/{cell.name}/drain"
    refused = client.post(path, {"at_once": "1", "reason": "r"}, follow=True).content.decode()
    assert "1 of 1 tenants, with 100 runs/s, fit on no other cell" in refused
    assert not Relocation.objects.exists()
    client.post(path, {"at_once": "1", "reason": "r", "override": "on"})
    assert Relocation.objects.count() == 1


def test_a_quota_beyond_headroom_needs_an_override(client: Client) -> None:
    cell = CellFactory(capacity_runs_per_second=200)
    tenant = TenantFactory(slug="acme", cell=cell.name)
    quotas = {name: str(value) for name, value in tenant.quota.as_dict().items()}
    path = "/admin/pages/tenants/acme/quotas"
    wanted = {**quotas, "job_runs_per_second": "300", "reason": "they asked"}
    refused = client.post(path, wanted, follow=True).content.decode()
    assert "300 runs/s exceed the capacity" in refused
    client.post(path, {**wanted, "override": "on"})
    tenant.quota.refresh_from_db()
    assert tenant.quota.job_runs_per_second == 300


def test_the_delays_of_a_tenant_whose_cell_is_away(client: Client) -> None:
    TenantFactory(slug="acme")
    answer = client.get("/admin/pages/tenants/acme/delays?hours=168")
    assert answer.status_code == 200
    assert "The cell does not answer" in answer.content.decode()
