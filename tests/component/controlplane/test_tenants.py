"""Tenants: made whole or not at all, changed with everything that follows."""

from __future__ import annotations

import socket
import time
import uuid
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from billing.models import UsageDay
from controlplane.errors import Conflicting, Invalid, NotFound, VersionMismatch
from controlplane.events.models import AuditEvent, Change, OutboxItem
from controlplane.ownership import OwnershipStore
from controlplane.ownership.postgres import PostgresOwnershipStore
from controlplane.tenants.actions.tenants import (
    create_tenant,
    resume_tenant,
    set_quotas,
    suspend_tenant,
    update_tenant,
)
from controlplane.tenants.models import Tenant, WorkspaceSchema
from controlplane.topology.actions.cells import cordon_cell
from controlplane.topology.models import Placement, Site, Tenure
from controlplane.topology.use import live_use
from tests.component.controlplane.console.cell import Cell as ConsoleCell
from tests.component.controlplane.contents import contents
from tests.component.controlplane.factories import ACTOR, REASON, CellFactory, RegionFactory, TenantFactory
from tests.component.controlplane.signed import tenant_admin

pytestmark = pytest.mark.django_db


def _traces(tenant: Tenant) -> tuple[int, int, int]:
    """Audit events, feed rows, and generations wanted of the push."""
    pushes = OutboxItem.objects.filter(topic="push_tenant", subject=str(tenant.id))
    return (
        AuditEvent.objects.filter(tenant_id=tenant.id).count(),
        Change.objects.filter(kind="tenant", key=tenant.public_id).count(),
        sum(pushes.values_list("generation", flat=True)),
    )


def test_a_new_tenant_has_everything(control: None, ownership: OwnershipStore) -> None:
    cell = CellFactory()
    tenant = create_tenant(
        slug="acme", name=" Acme ", home_region="here", quotas={"job_runs_per_second": 50},
        actor=ACTOR, reason=REASON,
    )  # fmt: skip
    assert (tenant.name, tenant.state, tenant.version) == ("Acme", "ACTIVE", 1)
    assert tenant.quota.job_runs_per_second == 50
    assert tenant.quota.api_requests_per_second == 100
    placement = Placement.objects.get(tenant=tenant)
    owned = ownership.tenant(tenant.id)
    assert owned is not None
    assert (placement.cell_id, placement.epoch) == (cell.name, owned.epoch)
    assert owned.cell == cell.name
    assert owned.epoch > cell.ownership_epoch
    tenure = Tenure.objects.get(tenant=tenant)
    assert (tenure.cell_id, tenure.epoch, tenure.until) == (cell.name, owned.epoch, None)
    schema = WorkspaceSchema.objects.get(tenant_id=tenant.id)
    assert (schema.schema, schema.state) == (tenant.schema_name, "CLAIMED")
    assert _traces(tenant) == (2, 1, 1)
    assert "open in here" in placement.why


def test_every_fault_is_told_at_once_and_nothing_is_made(control: None) -> None:
    RegionFactory()
    with pytest.raises(Invalid) as refused:
        create_tenant(
            slug="Not A Slug", name="", home_region="nowhere", default_region_policy="SOMETIMES",
            quotas={"job_runs_per_second": 0, "wishes": 3}, actor=ACTOR, reason=REASON,
        )  # fmt: skip
    assert sorted(f.pointer for f in refused.value.faults) == [
        "/default_region_policy", "/home_region", "/name", "/quotas/job_runs_per_second",
        "/quotas/wishes", "/slug",
    ]  # fmt: skip
    assert not Tenant.objects.exists()


def test_strict_by_default_needs_a_cell_in_several_regions(control: None) -> None:
    cell = CellFactory()
    tenant = TenantFactory(slug="one-region")
    with pytest.raises(Invalid) as refused:
        TenantFactory(slug="strict", default_region_policy="STRICT")
    assert [f.pointer for f in refused.value.faults] == ["/default_region_policy"]
    assert not Tenant.objects.filter(slug="strict").exists()
    strict = {"tenant_id": tenant.id, "default_region_policy": "STRICT", "actor": ACTOR, "reason": REASON}
    with pytest.raises(Invalid, match="several regions"):
        update_tenant(**strict)
    Site.objects.create(
        cell=cell, region=RegionFactory(name="there"), url="http://127.0.0.1:2", primary=False
    )
    assert update_tenant(**strict).default_region_policy == "STRICT"


def test_without_a_cell_there_is_no_tenant(control: None) -> None:
    cell = CellFactory()
    cordon_cell(name=cell.name, actor=ACTOR, reason=REASON)
    with pytest.raises(Conflicting, match="cordoned"):
        TenantFactory(slug="nowhere")
    assert not Tenant.objects.filter(slug="nowhere").exists()
    assert not WorkspaceSchema.objects.filter(state="CLAIMED").exists()


def test_without_the_ownership_store_there_is_no_tenant(control: None) -> None:
    from controlplane.errors import Unavailable

    CellFactory()
    away = PostgresOwnershipStore("postgresql://nobody@127.0.0.1:1/none", timeout_seconds=0.2)
    with pytest.raises(Unavailable):
        create_tenant(
            slug="lost", name="Lost", home_region="here", store=away, actor=ACTOR, reason=REASON
        )  # fmt: skip
    away.close()
    assert not Tenant.objects.filter(slug="lost").exists()


def test_a_slug_is_taken_once(control: None) -> None:
    TenantFactory(slug="acme")
    with pytest.raises(Conflicting, match="acme"):
        TenantFactory(slug="acme")


def test_a_change_is_versioned_audited_published_and_pushed(control: None) -> None:
    tenant = TenantFactory()
    before = _traces(tenant)
    changed = set_quotas(
        tenant_id=tenant.id, quotas={"running_runs": 7}, expected_version=1, actor=ACTOR, reason="less"
    )
    assert changed.version == 2
    assert _traces(tenant) == tuple(n + 1 for n in before)
    event = AuditEvent.objects.filter(action="tenant.set_quotas").get()
    assert (event.before, event.after) == ({"running_runs": 10_000}, {"running_runs": 7})
    assert (event.actor, event.reason) == ("service:tests", "less")


@pytest.mark.parametrize("name", ["Ada\nBcc: x@example.com", "A\x00B", "A\u2028B", "A\x7fB"])
def test_a_name_is_one_line(control: None, name: str) -> None:
    tenant = TenantFactory()
    before = contents()
    with pytest.raises(Invalid) as refused:
        update_tenant(tenant_id=tenant.id, name=name, actor=ACTOR, reason=REASON)
    assert [f.pointer for f in refused.value.faults] == ["/name"]
    assert contents() == before


def test_the_api_tells_quotas_with_their_use(control: None) -> None:
    key = bytes(range(32))
    with ConsoleCell("cell-use", key) as cell:
        CellFactory(name=cell.name, url=cell.url, key=key)
        tenant = TenantFactory()
        api = tenant_admin(tenant)
        cell.use |= {"pending_timers": tenant.quota.pending_timers + 1, "job_runs_per_second": 25.0}
        document = api.get("/v1/tenant").json
        use = {each["name"]: each for each in document["usage"]}
        assert list(use) == list(type(tenant.quota).NAMES)
        assert document["usage_unknown"] is None
        assert (use["job_runs_per_second"]["used"], use["job_runs_per_second"]["share"]) == (25.0, 25.0)
        assert (use["pending_timers"]["at_least"], use["pending_timers"]["share"]) == (True, 100.0)
        assert (use["running_runs"]["used"], use["running_runs"]["quota"]) == (3, 10_000)
        assert use["strict_jobs_per_second"] == {
            "name": "strict_jobs_per_second", "quota": 0, "used": 0, "at_least": False, "share": None,
            "measured": "the busiest second of the coming day", "unknown_since": None, "over": "REFUSED",
            "over_means": "such a job is refused, with the next free instant",
            "enforced_by": "the cell, as it is created or changed",
        }  # fmt: skip
        assert use["api_requests_per_second"]["used"] is None  # no meters of routers have ever come
        asked = [call for call in cell.calls if call.target.startswith("/internal/")]
        assert [call.caller.scopes for call in asked] == [("internal",)]
        assert api.get("/v1/quotas").json == {"items": document["usage"], "unknown": None}
        cell.answers[f"GET /internal/tenants/{tenant.public_id}/use"] = (503, {"detail": "away"})
        away = api.get("/v1/tenant").json
    assert "does not answer" in away["usage_unknown"]
    assert {each["used"] for each in away["usage"]} == {None}


def test_nought_is_said_only_while_meters_come(control: None) -> None:
    tenant = TenantFactory()
    names = {"api_requests_per_second": "router", "workflow_steps_per_second": "cell-counts"}
    CellFactory(name="cell-counts", url="http://127.0.0.1:9", key=bytes(32))
    Placement.objects.update_or_create(tenant=tenant, defaults={"cell_id": "cell-counts", "epoch": 1})
    now = timezone.now()
    for sender in names.values():
        UsageDay.objects.create(
            tenant_id=uuid.uuid4(), day=now.date(), metric="API_REQUESTS", region_policy="", cell=sender,
            quantity=1, records=1, computed_at=now,
        )  # fmt: skip
    heard = {use.name: use for use in live_use(tenant)[0]}
    assert {name: heard[name].used for name in names} == dict.fromkeys(names, 0.0)
    silent = now - timedelta(minutes=20)
    UsageDay.objects.update(computed_at=silent)
    missed = {use.name: use for use in live_use(tenant)[0]}
    assert {(missed[name].used, missed[name].unknown_since) for name in names} == {(None, silent)}


def test_a_cell_that_hangs_holds_nobody_up_for_long(control: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung:
        url = f"http://127.0.0.1:{hung.getsockname()[1]}"
        CellFactory(name="cell-hangs", url=f"{url},{url}/", key=bytes(32))
        tenant = TenantFactory()
        Placement.objects.update_or_create(tenant=tenant, defaults={"cell_id": "cell-hangs", "epoch": 1})
        began = time.monotonic()
        uses, away = live_use(tenant)
        took = time.monotonic() - began
    assert "does not answer" in away
    assert {use.used for use in uses} == {None}
    assert took < 4.5  # the usual patience with cells is 5 s for each address


def test_no_change_leaves_no_trace(control: None) -> None:
    tenant = TenantFactory()
    before = _traces(tenant)
    set_quotas(tenant_id=tenant.id, quotas={"running_runs": 10_000}, actor=ACTOR, reason=REASON)
    update_tenant(tenant_id=tenant.id, name=tenant.name, actor=ACTOR, reason=REASON)
    resume_tenant(tenant_id=tenant.id, actor=ACTOR, reason=REASON)
    assert _traces(tenant) == before
    assert Tenant.objects.get(pk=tenant.id).version == 1


def test_a_change_of_something_older_is_refused(control: None) -> None:
    tenant = TenantFactory()
    update_tenant(tenant_id=tenant.id, name="New", actor=ACTOR, reason=REASON)
    with pytest.raises(VersionMismatch) as refused:
        update_tenant(tenant_id=tenant.id, name="Old", expected_version=1, actor=ACTOR, reason=REASON)
    assert refused.value.current == 2
    assert Tenant.objects.get(pk=tenant.id).name == "New"


def test_suspended_and_resumed(control: None) -> None:
    tenant = TenantFactory()
    assert suspend_tenant(tenant_id=tenant.id, actor=ACTOR, reason="unpaid").state == "SUSPENDED"
    assert resume_tenant(tenant_id=tenant.id, actor=ACTOR, reason="paid").state == "ACTIVE"
    assert Tenant.objects.get(pk=tenant.id).version == 3


def test_an_unknown_tenant_is_not_found(control: None) -> None:
    from controlplane.identity import new_id

    with pytest.raises(NotFound):
        suspend_tenant(tenant_id=new_id(), actor=ACTOR, reason=REASON)


def test_audit_events_cannot_be_changed(control: None) -> None:
    from django.db import IntegrityError, transaction
    from django.db.utils import InternalError

    TenantFactory()
    for statement in ("UPDATE events_auditevent SET actor = ''", "DELETE FROM events_auditevent"):
        with (
            pytest.raises((IntegrityError, InternalError), match="append-only"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
