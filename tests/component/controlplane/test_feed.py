"""The routing feed: complete, commit-safe, never late."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.db import connection, connections, transaction
from django.utils import timezone

from controlplane.events import feed
from controlplane.events.models import AuditEvent, Change
from controlplane.events.recording import publish
from controlplane.events.tasks import prune
from controlplane.tenants.actions.api_keys import create_api_key, revoke_api_key, rotate_api_key
from controlplane.tenants.actions.tenants import set_quotas, suspend_tenant
from controlplane.tenants.models import ApiKey
from controlplane.topology.actions.cells import cordon_cell
from tests.component.controlplane.factories import ACTOR, REASON, TenantFactory
from tests.component.controlplane.signed import SignedClient


def _changes(cursor: str) -> dict[tuple[str, str], Any]:
    return {(c["kind"], c["id"]): c["value"] for c in feed.changes(cursor)["changes"]}


def _key(tenant: Any) -> ApiKey:
    return create_api_key(tenant_id=tenant.id, name="k", scopes=["jobs:read"], actor=ACTOR, reason=REASON).key


@pytest.mark.django_db
def test_an_operators_act_is_one_audit_event_however_often_it_is_told(control: None) -> None:
    tenant = TenantFactory()
    act = {
        "act_id": str(uuid.uuid4()), "at_ms": 1_790_000_000_000, "actor": "key:op",
        "tenant_id": tenant.public_id,
        "method": "DELETE", "path": "/v1/jobs/j", "request_id": "r", "client": "::1",
    }  # fmt: skip
    router = SignedClient(scopes=("internal",), sign_body=True)
    for _ in range(2):
        assert router.post("/internal/operator-acts", {"acts": [act]}).status == 200
    event = AuditEvent.objects.get(action="operator.request")
    assert (event.tenant_id, event.actor, event.subject) == (tenant.id, "key:op", "DELETE /v1/jobs/j")
    assert event.at.isoformat() == "2026-09-21T14:13:20+00:00"
    wrong = router.post("/internal/operator-acts", {"acts": [{**act, "tenant_id": "nobody"}]})
    assert wrong.status == 422
    customer = SignedClient(tenant_id=tenant.public_id, sign_body=True)
    assert customer.post("/internal/operator-acts", {"acts": [act]}).status == 403
    assert AuditEvent.objects.filter(action="operator.request").count() == 1


@pytest.mark.django_db
def test_a_snapshot_has_what_routers_need(control: None) -> None:
    tenant = TenantFactory()
    key = _key(tenant)
    gone = _key(tenant)
    revoke_api_key(tenant_id=tenant.id, key_id=gone.id, actor=ACTOR, reason=REASON)
    snapshot = feed.snapshot()
    cell = tenant.placement.cell
    assert snapshot["cells"] == {
        cell.name: {"url": "http://127.0.0.1:1", "secret_hex": bytes(range(32)).hex(), "state": "OPEN"}
    }
    assert snapshot["tenants"] == {
        tenant.public_id: {
            "cell": cell.name, "epoch": tenant.placement.epoch, "state": "ACTIVE",
            "api_requests_per_second": 100,
        }
    }  # fmt: skip
    assert snapshot["keys"] == {
        key.id: {
            "sha256": key.sha256, "tenant_id": tenant.public_id, "scopes": ["jobs:read"],
            "expires_at_ms": None,
        }
    }  # fmt: skip


@pytest.mark.django_db
def test_every_change_of_a_routing_fact_is_told(control: None) -> None:
    tenant = TenantFactory()
    key = _key(tenant)
    cursor = feed.snapshot()["cursor"]
    Change.objects.all().delete()  # the test is one transaction: look at what comes from here on

    suspend_tenant(tenant_id=tenant.id, actor=ACTOR, reason=REASON)
    assert _changes(cursor)[("tenant", tenant.public_id)]["state"] == "SUSPENDED"
    set_quotas(tenant_id=tenant.id, quotas={"api_requests_per_second": 7}, actor=ACTOR, reason=REASON)
    assert _changes(cursor)[("tenant", tenant.public_id)]["api_requests_per_second"] == 7
    issued = rotate_api_key(tenant_id=tenant.id, key_id=key.id, actor=ACTOR, reason=REASON)
    told = _changes(cursor)
    assert told[("key", key.id)]["expires_at_ms"] is not None
    assert told[("key", issued.key.id)]["sha256"] == issued.key.sha256
    revoke_api_key(tenant_id=tenant.id, key_id=key.id, actor=ACTOR, reason=REASON)
    assert _changes(cursor)[("key", key.id)] is None
    cell = tenant.placement.cell_id
    cordon_cell(name=cell, actor=ACTOR, reason=REASON)
    assert _changes(cursor)[("cell", cell)]["state"] == "CORDONED"


@pytest.mark.django_db
@pytest.mark.parametrize("cursor", ["", "x", "x.5", "00000000-0000-0000-0000-000000000000.1"])
def test_cursors_of_other_feeds_are_gone(control: None, cursor: str) -> None:
    with pytest.raises(feed.CursorGone):
        feed.changes(cursor)


@pytest.mark.django_db
def test_a_cursor_of_the_future_is_gone(control: None) -> None:
    identity, _, xid = feed.snapshot()["cursor"].rpartition(".")
    with pytest.raises(feed.CursorGone):
        feed.changes(f"{identity}.{int(xid) + 1000}")


@pytest.fixture
def committed(transactional_db: None, ownership: object) -> Iterator[None]:
    """A test that commits; what it wrote is wiped afterwards."""
    yield
    connections.close_all()


def _in_thread(work: Any) -> threading.Thread:
    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_a_transaction_that_commits_late_is_not_lost(committed: None) -> None:
    """It got its number early; a cursor that went past it would never show it."""
    written, commit = threading.Event(), threading.Event()

    def slow() -> None:
        with transaction.atomic():
            publish(Change.Kind.KEY, "early")
            written.set()
            commit.wait(10)

    cursor = feed.snapshot()["cursor"]
    thread = _in_thread(slow)
    assert written.wait(10)
    publish(Change.Kind.KEY, "late")
    # What committed is told at once, though an older transaction still runs: no revocation waits.
    seen = feed.changes(cursor)
    assert [c["id"] for c in seen["changes"]] == ["late"]
    commit.set()
    thread.join(10)
    after = feed.changes(seen["cursor"])
    assert {c["id"] for c in after["changes"]} == {"early", "late"}
    assert feed.changes(after["cursor"])["changes"] == []


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_pruning_refuses_the_cursors_it_would_deceive(committed: None) -> None:
    old = feed.snapshot()["cursor"]
    publish(Change.Kind.KEY, "a")
    new = feed.changes(old)["cursor"]
    feed.prune(keep_seconds=3600)
    assert [c["id"] for c in feed.changes(old)["changes"]] == ["a"]
    feed.prune(keep_seconds=0)
    assert not Change.objects.exists()
    with pytest.raises(feed.CursorGone):
        feed.changes(old)
    assert feed.changes(new)["changes"] == []


@pytest.mark.django_db
def test_sessions_that_ended_are_forgotten() -> None:
    for key, ends in (("over", timedelta(minutes=-1)), ("live", timedelta(minutes=1))):
        Session.objects.create(session_key=key, session_data="", expire_date=timezone.now() + ends)
    prune()
    assert list(Session.objects.values_list("session_key", flat=True)) == ["live"]


@pytest.mark.django_db
def test_the_endpoints(control: None) -> None:
    tenant = TenantFactory()
    key = _key(tenant)
    router = SignedClient(scopes=("internal",), actor="service:router", sign_body=True)
    snapshot = router.get("/internal/routing/snapshot")
    assert snapshot.status == 200
    assert key.id in snapshot.json["keys"]
    changes = router.get(f"/internal/routing/changes?cursor={snapshot.json['cursor']}")
    assert (changes.status, set(changes.json)) == (200, {"cursor", "changes"})
    assert router.get("/internal/routing/changes?cursor=old").status == 410
    used = router.post("/internal/routing/used", {"keys": {key.id: 1_790_000_000_000, "unknown": 5}})
    assert used.status == 200
    assert ApiKey.objects.get(pk=key.id).last_used_at.timestamp() == 1_790_000_000
    router.post("/internal/routing/used", {"keys": {key.id: 1_780_000_000_000}})
    assert ApiKey.objects.get(pk=key.id).last_used_at.timestamp() == 1_790_000_000


@pytest.mark.django_db
def test_the_endpoints_are_for_routers_only(control: None) -> None:
    for client, status in (
        (SignedClient(scopes=("operator",), sign_body=True), 403),  # a customer's request, forwarded
        (SignedClient(scopes=("internal",), secret=b"y" * 32, sign_body=True), 401),
        (SignedClient(scopes=("internal",), kid="local-shared-1", sign_body=True), 401),
    ):
        assert client.get("/internal/routing/snapshot").status == status
        assert client.get("/internal/routing/changes?cursor=x").status == status
        assert client.post("/internal/routing/used", {"keys": {}}).status == status
    unsigned_body = SignedClient(scopes=("internal",))
    assert unsigned_body.post("/internal/routing/used", {"keys": {}}).status == 401
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
