"""Operators' pages of regions where there is one region and no keeper, and what they say of what was done."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from controlplane.errors import Conflicting, Invalid
from controlplane.evacuations.models import EvacuatedCell, Evacuation, EvacuationStep
from controlplane.evacuations.wishing import ask_wish, plan_wish
from controlplane.events.models import AuditEvent
from controlplane.rehearsals.models import Rehearsal, RehearsedCell
from controlplane.rehearsals.report import report_of
from controlplane.tenants.models import User
from controlplane.topology.actions.sites import register_site
from controlplane.topology.models import Site
from tests.component.controlplane.factories import ACTOR, REASON, CellFactory, TenantFactory

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
    shown = _text(client, "regions/")
    assert "No region is registered." in shown
    assert "clockhouse rehearse REGION" in shown


def test_a_cell_without_another_site_is_named_with_its_tenants(client: Client) -> None:
    cell = CellFactory()
    TenantFactory(slug="acme", cell=cell.name)
    assert cell.name in _text(client, "regions/")
    plan = _text(client, "regions/here/evacuate")
    assert "its tenants have to be moved" in plan
    assert "Nothing can be begun" in plan
    refused = client.post(
        "/admin/pages/regions/here/evacuate", {"at_once": "1", "reason": "drill"}, follow=True
    )
    assert "Nothing was begun" in refused.content.decode()
    assert not Evacuation.objects.exists()
    assert "nobody would take it over" in _text(client, f"regions/here/rehearse?cell={cell.name}")
    assert "owns no cell that has other sites" in _text(client, "regions/here/rehearse")


def test_a_site_is_known_by_its_keeper_and_a_silent_one_is_asked_for_nothing(client: Client) -> None:
    cell = CellFactory()
    for _ in range(2):
        register_site(
            cell=cell.name, region="there", keeper_url="http://127.0.0.1:9", actor=ACTOR, reason=REASON
        )
    assert AuditEvent.objects.filter(action="cell.register_site").count() == 1
    site = Site.objects.get(cell=cell, region="there")
    assert (site.primary, site.url) == (False, "http://127.0.0.1:1")
    with pytest.raises(Invalid, match="/keeper_url"):
        register_site(cell=cell.name, region="there", keeper_url="keeper", actor=ACTOR, reason=REASON)
    assert "does not answer" in _text(client, "regions/")
    wish = _text(client, f"cells/{cell.name}/sites/there/hand-over")
    assert "It cannot be asked for now" in wish
    plan = plan_wish(cell=cell.name, region="there", verb="override")
    assert plan.confirmation == f"{cell.name} there"
    asked = {"cell": cell.name, "region": "there", "verb": "override", "actor": ACTOR}
    with pytest.raises(Invalid) as refused:
        ask_wish(**asked, reason="")
    assert {fault.pointer for fault in refused.value.faults} == {"/confirm", "/reason", "/epoch"}
    with pytest.raises(Conflicting):
        ask_wish(**asked, epoch=plan.epoch, confirm=plan.confirmation, reason="it burnt down")


def test_an_evacuation_and_a_rehearsal_say_how_far_they_are(client: Client) -> None:
    cell = CellFactory()
    running = Evacuation.objects.create(region_id="here", kind="EVACUATE", why="0 of 1", started_by="tests")
    row = EvacuatedCell.objects.create(
        evacuation=running, cell=cell, position=0, source="here", target="there", state="CATCH_UP",
        progress={"behind_bytes": 12_345}, facts={"loss": {"says": "17 bytes did not reach there"}},
    )  # fmt: skip
    EvacuationStep.objects.create(evacuated=row, state="CATCH_UP")
    page = f"evacuations/{running.public_id}/"
    shown = _text(client, page)
    assert "12,345" in shown
    assert "17 bytes did not reach there" in shown
    assert client.get(f"/admin/pages/{page}").headers["Refresh"] == "2"
    for verb, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("abort", "ABORTING")):
        client.post(f"/admin/pages/{page}", {"verb": verb, "reason": "drill"})
        running.refresh_from_db()
        assert running.state == state
    assert AuditEvent.objects.filter(action__in=["evacuation.pause", "evacuation.abort"]).count() == 2
    assert "Bring nothing more back" not in _text(client, page)
    Evacuation.objects.filter(pk=running.pk).update(hand_back=True)
    assert "Bring nothing more back" in _text(client, page)
    client.post(f"/admin/pages/{page}", {"verb": "abort", "reason": "its region is gone"})
    running.refresh_from_db()
    assert (running.state, running.hand_back) == ("ABORTING", False)

    done = Rehearsal.objects.create(region_id="here", state="DONE", seconds=60, started_by="tests")
    counted = {
        "due": 5,
        "once": 4,
        "repeats": [{"tenant_id": "tnt_x", "run_id": "job_k", "state": "FAILED", "lost": 1}],
    }
    report = report_of(cell=cell.name, region="here", cut_at=0.0, facts={}, counted=counted)
    RehearsedCell.objects.create(rehearsal=done, cell=cell, epoch=1, report=report)
    assert "job_k" in _text(client, f"rehearsals/{done.public_id}/")
    files = f"rehearsals/{done.public_id}/report"
    assert json.loads(_text(client, f"{files}.json"))["together"]["due"] == 5
    assert "tnt_x,job_k,FAILED,1" in _text(client, f"{files}.csv")
    assert client.get(f"/admin/pages/{files}.xml").status_code == 404
