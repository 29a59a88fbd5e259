"""A tenant is erased from the control plane: no table has its id or words but those kept."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.db import connection
from django.utils import timezone

from billing.models import UsageDay
from controlplane.custody import certificates, erasing, exporting, tasks
from controlplane.custody.holdings import KEPT
from controlplane.custody.models import Erasure, ErasureState
from controlplane.errors import Conflicting, Forbidden, Invalid, NotFound
from controlplane.events.models import AuditEvent, Change
from controlplane.identity import TENANT, encode
from controlplane.notifications.models import NotificationRule
from controlplane.tenants.actions.api_keys import create_api_key
from controlplane.tenants.actions.tenants import update_tenant
from controlplane.tenants.models import Tenant, WorkspaceSchema
from tests.component.controlplane.factories import (
    ACTOR,
    REASON,
    CellFactory,
    MembershipFactory,
    TenantFactory,
)
from tests.component.controlplane.standin import StandInCell

pytestmark = pytest.mark.django_db
SECRET = "planted-secret-91ac"
KEY = bytes(range(32))


@pytest.fixture(autouse=True)
def place(control: None, settings: Any, tmp_path: Path) -> Path:
    settings.BILLING_EXPORTS = {**settings.BILLING_EXPORTS, "url": f"file://{tmp_path}"}
    settings.CUSTODY = {**settings.CUSTODY, "grace_seconds": 3600}
    return tmp_path


@pytest.fixture
def cells() -> Iterator[tuple[StandInCell, StandInCell]]:
    """Where the tenant lives, and one it never lived in."""
    names = [f"cell-{uuid.uuid4().hex[:10]}" for _ in range(2)]
    with StandInCell(names[0], KEY) as home, StandInCell(names[1], KEY) as other:
        CellFactory(name=home.name, url=home.url, key=KEY)
        yield home, other


@pytest.fixture
def tenant(cells: tuple[StandInCell, StandInCell], place: Path) -> Tenant:
    """One that has left something everywhere."""
    home, other = cells
    tenant = TenantFactory(name=f"Name {SECRET}")
    CellFactory(name=other.name, url=other.url, key=KEY)
    home.tenants[tenant.public_id] = {"tenant_id": tenant.public_id}
    MembershipFactory(tenant=tenant, role="owner")
    create_api_key(tenant_id=tenant.id, name=SECRET, scopes=["admin"], actor=ACTOR, reason=SECRET)
    update_tenant(tenant_id=tenant.id, name=f"Other {SECRET}", actor=ACTOR, reason=SECRET)
    NotificationRule.objects.create(
        tenant=tenant, name=SECRET, kinds=["*"], channel="EMAIL", created_by=SECRET
    )
    export = exporting.request_export(tenant_id=tenant.id, actor=ACTOR, reason=REASON)
    folder = place / exporting.folder_of(export)
    folder.mkdir(parents=True)
    (folder / "jobs.jsonl").write_text(SECRET)
    UsageDay.objects.create(
        tenant_id=tenant.id, day=timezone.now().date(), metric="job_runs", region_policy="HOME_ASYNC",
        cell=home.name, quantity=3, records=1,
    )  # fmt: skip
    return tenant


def _asked(tenant: Tenant) -> erasing.Requested:
    return erasing.request_erasure(tenant_id=tenant.id, confirm=tenant.slug, actor=ACTOR, reason=REASON)


def _over(erasure: Erasure) -> None:
    """The time of grace, or the pause between two looks."""
    Erasure.objects.filter(pk=erasure.pk).update(due_at=timezone.now() - timedelta(seconds=1))


def _tables(*ways: str) -> set[str]:
    """Tables of all schemas in whose rows one of these texts is."""
    found = set()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind = 'r' AND n.nspname !~ '^(pg_|information_schema)'"
        )
        for schema, table in cursor.fetchall():
            cursor.execute(f'SELECT to_jsonb(t)::text FROM "{schema}"."{table}" t')  # noqa: S608
            if any(way in text for (text,) in cursor.fetchall() for way in ways):
                found.add(table)
    return found


def test_nothing_is_left_but_what_is_kept(
    tenant: Tenant, cells: tuple[StandInCell, StandInCell], place: Path
) -> None:
    home, other = cells
    neighbour = MembershipFactory(tenant=TenantFactory())
    schema = WorkspaceSchema.objects.get(tenant_id=tenant.id).schema
    tenant_id, public_id = tenant.id, tenant.public_id
    ways = (str(tenant_id), tenant_id.hex, public_id)
    before = _tables(*ways, SECRET, SECRET.encode().hex())
    assert {"tenants_tenant", "tenants_apikey", "custody_tenantexport", "events_auditevent"} <= before
    asked = _asked(tenant)
    with pytest.raises(Conflicting):
        _asked(tenant)
    # The time of grace: everything goes on.
    assert tasks.run_erasures() == 0
    assert Tenant.objects.get(pk=tenant_id).state == "ACTIVE"
    _over(asked.erasure)
    home.failing = True
    assert not erasing.run(asked.erasure.id)
    asked.erasure.refresh_from_db()
    assert asked.erasure.why.startswith("cells: ")
    assert home.name in asked.erasure.why
    assert (Tenant.objects.get(pk=tenant_id).state, other.erased) == ("SUSPENDED", {public_id: True})
    with pytest.raises(Conflicting):
        erasing.cancel_erasure(erasure_id=asked.erasure.id, actor=ACTOR, reason=REASON)
    home.failing = False
    _over(asked.erasure)
    assert tasks.run_erasures() == 1
    assert _tables(*ways) <= {"custody_erasure", "events_auditevent", "billing_usage_day", "routing_change"}
    assert _tables(SECRET, SECRET.encode().hex()) == set()
    assert {e.action for e in AuditEvent.objects.filter(tenant_id=tenant_id)} == {
        "tenant.erasure_request",
        "tenant.erasure_begin",
        "tenant.erasure_finish",
    }
    assert not [path for path in place.rglob("*") if path.is_file()]
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema])
        assert cursor.fetchone() is None
    assert Change.objects.filter(kind=Change.Kind.TENANT, key=public_id).exists()
    neighbour.refresh_from_db()

    erasure = Erasure.objects.get(pk=asked.erasure.pk)
    assert erasure.state == ErasureState.DONE
    _check(erasure, home.name)
    # By its link it is fetched once; operators always have it.
    secret = asked.link.rpartition("/")[2]
    assert erasing.fetch_by_link(erasure.pk, secret) == erasure.certificate
    with pytest.raises(Conflicting):
        erasing.fetch_by_link(erasure.pk, secret)
    with pytest.raises(NotFound):
        erasing.fetch_by_link(erasure.pk, "another")
    # A cell that comes back from a backup is made to erase it again.
    home.erased.clear()
    home.tenants[public_id] = {"tenant_id": public_id}
    assert tasks.compare_erased() == 1
    assert home.erased == {public_id: True}
    assert tasks.compare_erased() == 0


def _check(erasure: Erasure, home: str) -> None:
    """As anybody can who has the published keys."""
    said = erasure.certificate
    assert said is not None
    (key,) = [k for k in certificates.published() if k["key_id"] == said["signature"]["key_id"]]
    text = json.dumps(said["certificate"], sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key["public_key"]))
    public.verify(base64.b64decode(said["signature"]["value"]), text)
    with pytest.raises(InvalidSignature):
        public.verify(base64.b64decode(said["signature"]["value"]), text + b" ")
    assert certificates.is_genuine(said)
    content = said["certificate"]
    assert content["tenant_id"] == encode(TENANT, erasure.tenant_id)
    where = {one["where"]: one["removed"] for one in content["erased"]}
    assert where[f"cell {home}"] == {"jobs": 3}
    assert (where["control plane"]["tenants_apikey"], where["exports"]) == (1, {"files": 1})
    kept = {one["what"]: one["rows"] for one in content["kept"]}
    assert (kept["billing_usage_day"], kept["custody_erasure"]) == (1, 1)
    assert not certificates.is_genuine({**said, "certificate": {**content, "tenant_id": "another"}})


def test_it_is_asked_for_by_the_right_ones_and_can_be_cancelled(tenant: Tenant) -> None:
    developer = type(ACTOR)(name="user:x")
    with pytest.raises(Forbidden):
        erasing.request_erasure(tenant_id=tenant.id, confirm=tenant.slug, actor=developer, reason="")
    with pytest.raises(Invalid):
        erasing.request_erasure(tenant_id=tenant.id, confirm="other", actor=ACTOR, reason="")
    numbers = erasing.plan(tenant.id)
    assert (numbers["members"], numbers["api_keys"], numbers["exports"], numbers["cells"]) == (1, 1, 1, 2)
    assert numbers["pending_timers"] == 7
    asked = _asked(tenant)
    erasing.cancel_erasure(erasure_id=asked.erasure.id, actor=ACTOR, reason=REASON)
    _over(asked.erasure)
    assert tasks.run_erasures() == 0
    assert erasing.open_erasure(tenant.id) is None
    assert _asked(tenant).erasure.state == ErasureState.REQUESTED


def test_of_every_table_it_is_decided_whether_it_is_kept() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')"
            " AND NOT c.relispartition AND a.attname IN ('tenant_id', 'about_tenant_id')"
        )
        tables = {name for (name,) in cursor.fetchall()}
    erased = {
        *("billing_budget", "billing_budget_alert", "billing_export", "billing_export_schedule"),
        *("billing_low_delay", "billing_sent_mail"),
    }
    kept = {table for table in KEPT if table.startswith("billing_")}
    assert {table for table in tables if table.startswith("billing_")} == kept | erased
