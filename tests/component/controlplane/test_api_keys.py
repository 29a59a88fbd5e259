"""API keys: rotated with grace, revoked at once, never stored as text."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from controlplane.actors import Actor
from controlplane.errors import Conflicting, Forbidden, Invalid, NotFound
from controlplane.events.models import AuditEvent, Change
from controlplane.tenants.actions import api_keys
from controlplane.tenants.actions.api_keys import (
    IssuedKey,
    create_api_key,
    revoke_api_key,
    rotate_api_key,
)
from controlplane.tenants.keys import parse_key
from controlplane.tenants.models import ApiKey, Tenant
from tests.component.controlplane.factories import ACTOR, TenantFactory

pytestmark = pytest.mark.django_db
PERSON = Actor(name="user:1")


@pytest.fixture
def tenant(control: None) -> Tenant:
    tenant: Tenant = TenantFactory()
    return tenant


def _made(tenant: Tenant, **more: object) -> IssuedKey:
    values: dict[str, object] = {"name": "ci", "scopes": ["jobs:read", "jobs:write"], **more}
    return create_api_key(tenant_id=tenant.id, **values, actor=PERSON, reason="")  # type: ignore[arg-type]


def _live(key: ApiKey, at: timedelta = timedelta(0)) -> bool:
    now = timezone.now() + at
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > now)


def test_the_text_is_in_no_table(tenant: Tenant) -> None:
    issued = _made(tenant)
    parsed = parse_key(issued.text)
    assert parsed is not None
    assert (parsed.id, parsed.sha256) == (issued.key.id, issued.key.sha256)
    secret = issued.text.split("_")[-1]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM tenants_apikey k, events_auditevent e"
            " WHERE k::text LIKE %(s)s OR e::text LIKE %(s)s",
            {"s": f"%{secret}%"},
        )
        assert cursor.fetchone() == (0,)


def test_all_faults(tenant: Tenant) -> None:
    with pytest.raises(Invalid) as refused:
        _made(
            tenant, name=" ", scopes=["jobs:read", "operator", "jobs:read"],
            expires_at=timezone.now() - timedelta(seconds=1),
        )  # fmt: skip
    assert sorted(f.pointer for f in refused.value.faults) == ["/expires_at", "/name", "/scopes", "/scopes/1"]
    with pytest.raises(Invalid):
        _made(tenant, scopes=[])


def test_both_keys_live_during_the_grace(tenant: Tenant) -> None:
    old = _made(tenant).key
    issued = rotate_api_key(
        tenant_id=tenant.id, key_id=old.id, grace=timedelta(hours=1), actor=PERSON, reason="leaked?"
    )
    old.refresh_from_db()
    assert (issued.key.name, issued.key.scopes) == (old.name, old.scopes)
    assert old.successor_id == issued.key.id
    assert _live(old)
    assert _live(old, timedelta(minutes=59))
    assert not _live(old, timedelta(minutes=61))
    assert _live(issued.key, timedelta(days=1000))
    assert set(Change.objects.filter(kind="key").values_list("key", flat=True)) == {old.id, issued.key.id}


def test_a_rotation_never_lengthens_a_life(tenant: Tenant) -> None:
    soon = timezone.now() + timedelta(minutes=5)
    old = _made(tenant, expires_at=soon).key
    issued = rotate_api_key(tenant_id=tenant.id, key_id=old.id, actor=PERSON, reason="")
    old.refresh_from_db()
    assert (old.expires_at, issued.key.expires_at) == (soon, soon)


def test_without_grace_the_old_key_ends_now(tenant: Tenant) -> None:
    old = _made(tenant).key
    rotate_api_key(tenant_id=tenant.id, key_id=old.id, grace=timedelta(0), actor=PERSON, reason="")
    old.refresh_from_db()
    assert not _live(old)


def test_a_key_is_rotated_once_and_only_live(tenant: Tenant) -> None:
    old = _made(tenant).key
    rotate_api_key(tenant_id=tenant.id, key_id=old.id, actor=PERSON, reason="")
    with pytest.raises(Conflicting, match="rotated already"):
        rotate_api_key(tenant_id=tenant.id, key_id=old.id, actor=PERSON, reason="")
    gone = _made(tenant).key
    revoke_api_key(tenant_id=tenant.id, key_id=gone.id, actor=PERSON, reason="")
    with pytest.raises(Conflicting, match="not live"):
        rotate_api_key(tenant_id=tenant.id, key_id=gone.id, actor=PERSON, reason="")
    with pytest.raises(Invalid):
        rotate_api_key(
            tenant_id=tenant.id,
            key_id=_made(tenant).key.id,
            grace=timedelta(days=31),
            actor=PERSON,
            reason="",
        )


def test_revoked_twice_is_revoked_once(tenant: Tenant) -> None:
    key = _made(tenant).key
    first = revoke_api_key(tenant_id=tenant.id, key_id=key.id, actor=PERSON, reason="")
    again = revoke_api_key(tenant_id=tenant.id, key_id=key.id, actor=PERSON, reason="")
    assert first.revoked_at == again.revoked_at
    assert AuditEvent.objects.filter(action="api_key.revoke", subject=key.id).count() == 1


def test_others_keys_are_not_found(tenant: Tenant) -> None:
    key = _made(TenantFactory()).key
    with pytest.raises(NotFound):
        revoke_api_key(tenant_id=tenant.id, key_id=key.id, actor=PERSON, reason="")
    with pytest.raises(NotFound):
        rotate_api_key(tenant_id=tenant.id, key_id=key.id, actor=PERSON, reason="")
    key.refresh_from_db()
    assert (key.revoked_at, key.successor_id) == (None, None)


def test_operators_keys_are_for_operators(tenant: Tenant) -> None:
    issued = create_api_key(tenant_id=None, name="op", scopes=["operator"], actor=ACTOR, reason="")
    assert issued.text.startswith("ch_op_")
    for act in (
        lambda: create_api_key(tenant_id=None, name="x", scopes=["operator"], actor=PERSON, reason=""),
        lambda: rotate_api_key(tenant_id=None, key_id=issued.key.id, actor=PERSON, reason=""),
        lambda: revoke_api_key(tenant_id=None, key_id=issued.key.id, actor=PERSON, reason=""),
    ):
        with pytest.raises(Forbidden):
            act()
    with pytest.raises(NotFound):
        revoke_api_key(tenant_id=tenant.id, key_id=issued.key.id, actor=ACTOR, reason="")


def test_keys_that_have_ended_take_no_room(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a tenant that rotates as it should could make no key one day."""
    monkeypatch.setattr(api_keys, "MOST_KEYS", 2)
    first, _ = _made(tenant), _made(tenant)
    with pytest.raises(Conflicting):
        _made(tenant)
    second = rotate_api_key(tenant_id=tenant.id, key_id=first.key.id, actor=PERSON, reason="")
    third = rotate_api_key(tenant_id=tenant.id, key_id=second.key.id, actor=PERSON, reason="")
    with pytest.raises(Conflicting):  # all of them live through their grace
        rotate_api_key(tenant_id=tenant.id, key_id=third.key.id, actor=PERSON, reason="")
    ApiKey.objects.exclude(pk=third.key.id).update(expires_at=timezone.now())
    _made(tenant)
