"""Members: added by email, given another role, removed.

An owner is an admin who also makes and unmakes owners; a tenant never loses its last one.
"""

from __future__ import annotations

import uuid

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from controlplane.actors import Actor
from controlplane.errors import Conflicting, Fault, Forbidden, Invalid, NotFound, VersionMismatch, invalid
from controlplane.events.recording import record
from controlplane.locks import lock_tenant
from controlplane.tenants.models import Invitation, Membership, User
from controlplane.tenants.roles import Role


def may_make(actor: Actor, *roles: str) -> None:
    """Owners are made and unmade by owners; raises `Forbidden`."""
    if Role.OWNER in roles and not (actor.owner or actor.operator):
        raise Forbidden("only an owner makes and unmakes owners")


def role_faults(role: str | None) -> list[Fault]:
    """What is wrong with a role; None is fine."""
    if role is None or role in Role.values:
        return []
    return [Fault(pointer="/role", detail=f"{role[:40]} is none; there are {', '.join(Role.values)}")]


def _shown(member: Membership) -> dict[str, object]:
    return {"email": member.user.email, "role": member.role, "may_see_payloads": member.may_see_payloads}


@transaction.atomic
def add_member(
    *,
    tenant_id: uuid.UUID,
    email: str,
    role: str,
    may_see_payloads: bool = False,
    name: str = "",
    actor: Actor,
    reason: str,
) -> Membership:
    """Makes a person a member. Somebody new gets an account without a password, and sets one
    by mail (forgotten password); that proves the address."""
    email = email.strip().lower()
    faults = role_faults(role)
    try:
        validate_email(email)
    except ValidationError:
        faults.append(Fault(pointer="/email", detail="is not an email address, such as ada@example.com"))
    if faults:
        raise Invalid(faults)
    may_make(actor, role)
    tenant = lock_tenant(tenant_id)
    user = User.objects.filter(email=email).first() or _new_user(email, name)
    if Membership.objects.filter(tenant=tenant, user=user).exists():
        raise Conflicting(f"{email} is a member already")
    member = Membership.objects.create(tenant=tenant, user=user, role=role, may_see_payloads=may_see_payloads)
    # What they were invited to is here: a link that is still on its way has nothing more to give.
    pending = Invitation.objects.filter(tenant=tenant, email=email, accepted_at=None, revoked_at=None)
    pending.update(revoked_at=Now())
    record(
        action="member.add", subject=member.public_id, tenant_id=tenant.id, actor=actor, reason=reason,
        after=_shown(member),
    )  # fmt: skip
    return member


def _new_user(email: str, name: str) -> User:
    try:
        with transaction.atomic():
            return User.objects.create_user(email, None, name=name.strip()[:120])
    except IntegrityError:  # invited by two tenants at the same moment
        return User.objects.get(email=email)


def _member(tenant_id: uuid.UUID, member_id: uuid.UUID) -> Membership:
    lock_tenant(tenant_id)
    member = (
        Membership.objects.select_related("user", "tenant").filter(tenant=tenant_id, pk=member_id).first()
    )
    if member is None:
        raise NotFound("no such member")
    return member


def _keep_an_owner(member: Membership) -> None:
    others = Membership.objects.filter(tenant=member.tenant_id, role=Role.OWNER).exclude(pk=member.pk)
    if member.role == Role.OWNER and not others.exists():
        raise Conflicting("a tenant keeps at least one owner")


@transaction.atomic
def change_role(
    *,
    tenant_id: uuid.UUID,
    member_id: uuid.UUID,
    role: str | None = None,
    may_see_payloads: bool | None = None,
    expected_version: int | None = None,
    actor: Actor,
    reason: str,
) -> Membership:
    """Gives a member another role, or payload sight; None leaves it."""
    if faults := role_faults(role):
        raise Invalid(faults)
    if role is None and may_see_payloads is None:
        raise invalid("", "nothing to change")
    member = _member(tenant_id, member_id)
    if expected_version is not None and member.version != expected_version:
        raise VersionMismatch(member.version)
    before = _shown(member)
    if role is not None and role != member.role:
        may_make(actor, member.role, role)
        _keep_an_owner(member)
        member.role = role
    if may_see_payloads is not None:
        member.may_see_payloads = may_see_payloads
    after = _shown(member)
    if before == after:
        return member
    member.version += 1
    member.save()
    record(
        action="member.change_role", subject=member.public_id, tenant_id=tenant_id, actor=actor,
        reason=reason, before=before, after=after,
    )  # fmt: skip
    return member


@transaction.atomic
def remove_member(*, tenant_id: uuid.UUID, member_id: uuid.UUID, actor: Actor, reason: str) -> None:
    """Takes a person out of the tenant. Their account stays; so do keys they made."""
    member = _member(tenant_id, member_id)
    may_make(actor, member.role)
    _keep_an_owner(member)
    record(
        action="member.remove", subject=member.public_id, tenant_id=tenant_id, actor=actor, reason=reason,
        before=_shown(member),
    )  # fmt: skip
    member.delete()
