"""A tenant is erased from the control plane: no table has its id or words but those kept."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.core import mail
from django.db import connection
from django.utils import timezone

from billing.exports import requesting
from billing.exports.machine import Dataset, Format
from billing.invoices import drafting, settling
from billing.invoices.checking import agrees
from billing.invoices.models import Invoice
from billing.invoices.tasks import draft_closed
from billing.models import UsageDay
from billing.refusals import Conflicting as BillingConflicting
from controlplane.actors import Actor
from controlplane.custody import certificates, erasing, exporting, tasks
from controlplane.custody.holdings import KEPT
from controlplane.custody.models import Erasure, ErasureState, TenantExport
from controlplane.errors import Conflicting, Forbidden, Invalid, NotFound
from controlplane.events.models import AuditEvent, Change, OutboxItem
from controlplane.events.outbox import run_item
from controlplane.identity import TENANT, encode
from controlplane.notifications.models import NotificationRule
from controlplane.ownership.installed import installed_store
from controlplane.tenants.actions.api_keys import create_api_key
from controlplane.tenants.actions.tenants import update_tenant
from controlplane.tenants.models import Tenant, WorkspaceSchema
from controlplane.topology.models import Site
from controlplane.topology.tenures import tenures_of
from tests.component.billing.months import close, used
from tests.component.controlplane.factories import (
    ACTOR,
    REASON,
    CellFactory,
    MembershipFactory,
    RegionFactory,
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
    RegionFactory(name="there")
    Site.objects.create(
        cell_id=home.name, region_id="there", url=home.url, primary=False, keeper_url="http://127.0.0.1:1"
    )
    home.beside = [
        {"store": 1, "region": "east", "reached": True, "done": True, "why": "", "removed": {"jobs": 2},
         "erased_at": "2026-11-30T23:00:00+00:00"},
    ]  # fmt: skip
    _over(asked.erasure)
    assert tasks.run_erasures() == 1
    assert _tables(*ways) <= {
        *("custody_erasure", "events_auditevent", "billing_usage_day", "routing_change"),
        *("billing_account", "topology_tenure"),
    }
    # Its name stays where invoices need it, and nowhere else.
    assert _tables(SECRET, SECRET.encode().hex()) == {"billing_account"}
    assert installed_store().tenant(tenant_id) is None
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
    (apart,) = content["not_reached"]
    assert (apart["where"], "does not answer" in apart["why"]) == (f"site there of cell {home}", True)
    assert where[f"local store 1 of cell {home} in east"] == {"jobs": 2}
    assert (where["control plane"]["tenants_apikey"], where["exports"]) == (1, {"files": 1})
    kept = {one["what"]: one["rows"] for one in content["kept"]}
    assert (kept["billing_usage_day"], kept["custody_erasure"]) == (1, 1)
    assert not certificates.is_genuine({**said, "certificate": {**content, "tenant_id": "another"}})


def test_what_it_owes_is_billed_when_it_is_gone(tenant: Tenant) -> None:
    october, november = date(2026, 10, 1), date(2026, 11, 1)
    for month in (october, november):
        used(tenant, (month + timedelta(days=3), "job_runs", "HOME_ASYNC", 3_100_000))
    close(tenant, october)
    by: dict[str, Any] = {"actor": ACTOR, "reason": REASON}
    before = drafting.open_draft(tenant_id=tenant.id, month=october, **by)
    assert before is not None
    owners = [one.user.email for one in tenant.memberships.all()]
    asked = _asked(tenant)
    _over(asked.erasure)
    assert erasing.run(asked.erasure.pk)
    ((_, _, _, until),) = tenures_of([tenant.id], timezone.now() - timedelta(days=1), timezone.now())
    assert until is not None

    close(tenant, november)
    assert draft_closed(timezone.now() - timedelta(days=1)) == 1
    after = Invoice.objects.exclude(pk=before.pk).get(tenant_id=tenant.id)
    for draft in (before, after):
        invoice = settling.finalize(invoice_id=draft.id, now=timezone.now(), **by)
        assert (invoice.total, agrees(invoice)) == (Decimal("36.00"), True)
        assert (invoice.recipient["name"], invoice.recipient["emails"]) == (f"Other {SECRET}", owners)
        mail.outbox.clear()
        run_item(OutboxItem.objects.get(topic="billing_mail_invoice", subject=str(invoice.id)).pk)
        assert [one.to for one in mail.outbox] == [owners]


def test_exports_under_way_end_first(tenant: Tenant, place: Path) -> None:
    export = TenantExport.objects.get(tenant_id=tenant.id)
    soon = timezone.now() + timedelta(seconds=60)
    TenantExport.objects.filter(pk=export.pk).update(state="RUNNING", lease=uuid.uuid4(), leased_until=soon)
    asked = _asked(tenant)
    _over(asked.erasure)
    assert not erasing.run(asked.erasure.pk)
    asked.erasure.refresh_from_db()
    assert asked.erasure.why.startswith("exports: waits for 1")
    with pytest.raises(Conflicting, match="being erased"):
        exporting.request_export(tenant_id=tenant.id, actor=ACTOR, reason=REASON)
    today = timezone.now().date()
    with pytest.raises(BillingConflicting, match="being erased"):
        requesting.request_export(
            tenant_id=tenant.id, about_tenant_id=tenant.id, dataset=Dataset.USAGE, file_format=Format.CSV,
            since=today - timedelta(days=1), until=today, today=today, actor=ACTOR, reason=REASON,
        )  # fmt: skip
    # Whoever wrote it puts a last file, and learns that it is over.
    (place / exporting.folder_of(export) / "late.jsonl").write_text(SECRET)
    past = timezone.now() - timedelta(hours=1)
    TenantExport.objects.filter(pk=export.pk).update(leased_until=past)
    _over(asked.erasure)
    assert erasing.run(asked.erasure.pk)
    assert not [path for path in place.rglob("*") if path.is_file()]


def test_keys_erase_only_for_owners_and_owners_hear_of_it(tenant: Tenant) -> None:
    owner = tenant.memberships.get(role="owner").user
    admin = MembershipFactory(tenant=tenant, role="admin").user

    def key_of(maker: str) -> Actor:
        issued = create_api_key(
            tenant_id=tenant.id, name="key", scopes=["admin"], actor=Actor(name=maker), reason=REASON
        )
        return Actor(name=f"key:{issued.key.id}")

    def ask(actor: Actor) -> Erasure:
        return erasing.request_erasure(
            tenant_id=tenant.id, confirm=tenant.slug, actor=actor, reason="", key=True
        ).erasure

    admins, owners = key_of(admin.actor_name), key_of(owner.actor_name)
    for refused in (admins, key_of(admins.name), Actor(name="key:none")):
        with pytest.raises(Forbidden):
            ask(refused)
    # What a key asked for, such a key cancels, and no other.
    wish = ask(owners)
    with pytest.raises(Forbidden):
        erasing.cancel_erasure(erasure_id=wish.pk, actor=admins, reason="", key=True)
    _mailed(wish, f"Other {SECRET} is to be erased", owner.email)
    text = str(mail.outbox[0].body)
    for said in (f"the API key {owners.name[4:]}", f"/{tenant.slug}/settings/erasure"):
        assert said in text
    assert erasing.cancel_erasure(erasure_id=wish.pk, actor=owners, reason="", key=True).state == "CANCELLED"
    _mailed(wish, f"Other {SECRET} is not erased", owner.email)
    # What an owner asked for, only owners and operators do.
    wish = _asked(tenant).erasure
    with pytest.raises(Forbidden):
        erasing.cancel_erasure(erasure_id=wish.pk, actor=owners, reason="", key=True)
    mail.outbox.clear()
    _over(wish)
    assert erasing.run(wish.pk)
    assert [(one.subject, one.to) for one in mail.outbox] == [
        (f"Other {SECRET} is being erased", [owner.email])
    ]


def _mailed(wish: Erasure, subject: str, to: str) -> None:
    mail.outbox.clear()
    assert run_item(OutboxItem.objects.get(topic="mail_erasure", subject=str(wish.pk)).pk)
    assert [(one.subject, one.to) for one in mail.outbox] == [(subject, [to])]


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
        "billing_low_delay",
    }
    kept = {table for table in KEPT if table.startswith("billing_")}
    assert {table for table in tables if table.startswith("billing_")} == kept | erased
