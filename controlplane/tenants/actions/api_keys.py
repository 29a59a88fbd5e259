"""API keys: made, rotated, revoked. The text of a key is only ever in the return value."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from cells.contract import Scope
from controlplane.actors import Actor
from controlplane.errors import Conflicting, Fault, Forbidden, Invalid, NotFound, one_line
from controlplane.events.models import Change
from controlplane.events.recording import publish, record
from controlplane.locks import lock_tenant
from controlplane.tenants.keys import KeyText, new_key
from controlplane.tenants.models import ApiKey, Membership, User
from controlplane.tenants.roles import KEY_SCOPES, Role

#: How long the old key goes on after a rotation, if nothing else is said.
DEFAULT_GRACE = timedelta(hours=24)
LONGEST_GRACE = timedelta(days=30)
#: Live keys of one tenant; a router holds them all in memory.
MOST_KEYS = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class IssuedKey:
    """A key and, this once, its text."""

    key: ApiKey
    text: str


def _shown(key: ApiKey) -> dict[str, object]:
    return {
        "name": key.name,
        "scopes": list(key.scopes),
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
    }


def _scope_faults(scopes: Sequence[str], *, operator: bool) -> list[Fault]:
    allowed = {Scope.OPERATOR.value} if operator else {s.value for s in KEY_SCOPES}
    faults = [
        Fault(pointer=f"/scopes/{i}", detail=f"{scope[:40]} is none; there are {', '.join(sorted(allowed))}")
        for i, scope in enumerate(scopes)
        if scope not in allowed
    ]
    if not scopes:
        faults.append(Fault(pointer="/scopes", detail="is empty: a key needs at least one"))
    if len(set(scopes)) != len(scopes):
        faults.append(Fault(pointer="/scopes", detail="holds a scope twice"))
    return faults


def _issue(
    *,
    tenant_id: uuid.UUID | None,
    name: str,
    scopes: Sequence[str],
    expires_at: datetime | None,
    text: KeyText,
    actor: Actor,
) -> ApiKey:
    key = ApiKey.objects.create(
        id=text.id,
        tenant_id=tenant_id,
        name=name,
        sha256=text.sha256,
        scopes=list(scopes),
        expires_at=expires_at,
        created_by=actor.name,
    )
    publish(Change.Kind.KEY, key.id)
    return key


@transaction.atomic
def create_api_key(
    *,
    tenant_id: uuid.UUID | None,
    name: str,
    scopes: Sequence[str],
    expires_at: datetime | None = None,
    text: KeyText | None = None,
    actor: Actor,
    reason: str,
) -> IssuedKey:
    """A new key. `tenant_id` None makes an operators' key, which only operators may.

    `text` is for set-up scripts that bring their own; otherwise it is drawn here.
    """
    operator = tenant_id is None
    if operator and not actor.operator:
        raise Forbidden("operators' keys are made by operators")
    faults = _scope_faults(scopes, operator=operator)
    if not 0 < len(name.strip()) <= 120 or not one_line(name.strip()):
        detail = "1 to 120 characters, in one line and without control characters"
        faults.append(Fault(pointer="/name", detail=detail))
    if expires_at is not None and expires_at <= timezone.now():
        faults.append(Fault(pointer="/expires_at", detail="lies in the past"))
    if faults:
        raise Invalid(faults)
    if tenant_id is not None:
        lock_tenant(tenant_id)
        _check_room(tenant_id, MOST_KEYS)
    text = text or new_key(operator=operator)
    key = _issue(
        tenant_id=tenant_id, name=name.strip(), scopes=scopes, expires_at=expires_at, text=text, actor=actor
    )
    record(
        action="api_key.create", subject=key.id, tenant_id=tenant_id, actor=actor, reason=reason,
        after=_shown(key),
    )  # fmt: skip
    return IssuedKey(key=key, text=text.text)


def _check_room(tenant_id: uuid.UUID, most: int) -> None:
    """Under the tenant's lock. Keys that have ended take no room."""
    live = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    if ApiKey.objects.filter(live, tenant=tenant_id, revoked_at=None).count() >= most:
        raise Conflicting(f"a tenant has at most {most} live keys")


def _live_key(tenant_id: uuid.UUID | None, key_id: str) -> ApiKey:
    if tenant_id is not None:
        lock_tenant(tenant_id)
    key = ApiKey.objects.select_for_update(no_key=True).filter(tenant=tenant_id, pk=key_id).first()
    if key is None:
        raise NotFound("no such key")
    return key


@transaction.atomic
def rotate_api_key(
    *,
    tenant_id: uuid.UUID | None,
    key_id: str,
    grace: timedelta = DEFAULT_GRACE,
    actor: Actor,
    reason: str,
) -> IssuedKey:
    """A successor with the same name, scopes and expiry. The old key lives on for `grace`."""
    if not timedelta(0) <= grace <= LONGEST_GRACE:
        raise Invalid([Fault(pointer="/grace_seconds", detail=f"from 0 to {LONGEST_GRACE.days} days")])
    if tenant_id is None and not actor.operator:
        raise Forbidden("operators' keys are rotated by operators")
    key = _live_key(tenant_id, key_id)
    now = timezone.now()
    if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now):
        raise Conflicting("the key is not live any more")
    if key.successor_id is not None:
        raise Conflicting(f"the key was rotated already, to {key.successor_id}")
    if tenant_id is not None:
        _check_room(tenant_id, 2 * MOST_KEYS)  # each may have its successor beside it
    text = new_key(operator=tenant_id is None)
    successor = _issue(
        tenant_id=tenant_id,
        name=key.name,
        scopes=key.scopes,
        expires_at=key.expires_at,
        text=text,
        actor=actor,
    )
    before = _shown(key)
    key.successor = successor
    key.expires_at = min(now + grace, key.expires_at or now + grace)
    key.save(update_fields=["successor", "expires_at"])
    publish(Change.Kind.KEY, key.id)
    record(
        action="api_key.rotate", subject=key.id, tenant_id=tenant_id, actor=actor, reason=reason,
        before=before, after={**_shown(key), "successor": successor.id},
    )  # fmt: skip
    return IssuedKey(key=successor, text=text.text)


@transaction.atomic
def revoke_api_key(*, tenant_id: uuid.UUID | None, key_id: str, actor: Actor, reason: str) -> ApiKey:
    """Ends a key now. Again: nothing more happens."""
    if tenant_id is None and not actor.operator:
        raise Forbidden("operators' keys are revoked by operators")
    key = _live_key(tenant_id, key_id)
    if key.revoked_at is not None:
        return key
    key.revoked_at = timezone.now()
    key.save(update_fields=["revoked_at"])
    publish(Change.Kind.KEY, key.id)
    record(
        action="api_key.revoke", subject=key.id, tenant_id=tenant_id, actor=actor, reason=reason,
        before={"revoked_at": None}, after={"revoked_at": key.revoked_at.isoformat()},
    )  # fmt: skip
    return key


def made_for_owners(tenant_id: uuid.UUID, actor: Actor) -> bool:
    """Whether a tenant's key speaks for its owners: one of them made it and is one still, or an operator did.
    Admins make keys with every scope, and come to no more by that than they may themselves."""
    kind, _, key_id = actor.name.partition(":")
    key = ApiKey.objects.filter(pk=key_id, tenant=tenant_id).first() if kind == "key" else None
    if key is None:
        return False
    kind, _, maker = key.created_by.partition(":")
    if kind == "user":
        owning = Membership.objects.filter(
            tenant=tenant_id, user=maker, role=Role.OWNER, user__is_active=True
        )
        return owning.exists() or User.objects.filter(pk=maker, is_staff=True, is_active=True).exists()
    if kind == "key":
        return ApiKey.objects.filter(pk=maker, tenant=None).exists()
    return kind == "service"
