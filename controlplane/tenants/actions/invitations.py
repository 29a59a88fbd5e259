"""Invitations: a person is asked by mail, and becomes a member by opening the link in it.

The link holds the invitation's id and nonce, signed. What decides is the row: it expires, is
accepted once, can be revoked, and sending it again ends the links of earlier mails. It is only
good for the address it was sent to, so a link that was passed on lets nobody in.
"""

from __future__ import annotations

import secrets
import uuid
from datetime import timedelta

from django.core import signing
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from controlplane.actors import Actor
from controlplane.errors import Conflicting, Fault, Forbidden, Invalid, NotFound
from controlplane.events.recording import record, want
from controlplane.locks import lock_tenant
from controlplane.tenants.actions.members import may_make, role_faults
from controlplane.tenants.models import Invitation, Membership, User

TOPIC = "mail_invitation"
LIFE = timedelta(days=7)
#: Pending ones of a tenant: mails are sent to whoever is named, so nobody may name everybody.
MOST_PENDING = 200
#: Mails of one invitation follow each other no faster.
BETWEEN_MAILS = timedelta(minutes=1)
_SALT = "controlplane.tenants.invitations"


class LinkGone(Conflicting):
    """The link was good once: it expired, was used, revoked, or a newer mail replaced it."""


def link_token(invitation: Invitation) -> str:
    """What the link in the newest mail ends in."""
    return signing.dumps([str(invitation.id), invitation.nonce], salt=_SALT)


def open_link(token: str) -> Invitation:
    """The pending invitation of a link. Raises `NotFound` for what is no link of ours, and `LinkGone`."""
    try:
        invitation_id, nonce = signing.loads(token, salt=_SALT)
        invitation = Invitation.objects.select_related("tenant", "invited_by").get(pk=invitation_id)
    except (signing.BadSignature, Invitation.DoesNotExist, ValueError, TypeError, ValidationError):
        raise NotFound("no such invitation") from None
    if invitation.accepted_at is not None:
        raise LinkGone("It was accepted already.")
    if invitation.revoked_at is not None:
        raise LinkGone("It was withdrawn.")
    if not secrets.compare_digest(str(nonce), invitation.nonce):
        raise LinkGone("A newer mail replaced it; use the link in that one.")
    if invitation.expires_at <= timezone.now():
        raise LinkGone("It has expired.")
    return invitation


def _shown(invitation: Invitation) -> dict[str, object]:
    return {
        "email": invitation.email,
        "role": invitation.role,
        "may_see_payloads": invitation.may_see_payloads,
        "expires_at": invitation.expires_at.isoformat(),
    }


def _pending(tenant_id: uuid.UUID, invitation_id: uuid.UUID) -> Invitation:
    lock_tenant(tenant_id)
    invitation = Invitation.objects.filter(
        tenant=tenant_id, pk=invitation_id, accepted_at=None, revoked_at=None
    ).first()
    if invitation is None:
        raise NotFound("no such invitation is pending")
    return invitation


@transaction.atomic
def invite_member(
    *,
    tenant_id: uuid.UUID,
    email: str,
    role: str,
    may_see_payloads: bool = False,
    actor: Actor,
    reason: str,
) -> Invitation:
    """Asks a person to join; a mail goes out once this commits."""
    email = email.strip().lower()
    faults = role_faults(role)
    try:
        validate_email(email)
    except ValidationError:
        faults.append(Fault(pointer="/email", detail="not an email address"))
    if faults:
        raise Invalid(faults)
    may_make(actor, role)
    tenant = lock_tenant(tenant_id)
    if Membership.objects.filter(tenant=tenant, user__email=email).exists():
        raise Conflicting(f"{email} is a member already")
    pending = Invitation.objects.filter(tenant=tenant, accepted_at=None, revoked_at=None)
    if pending.filter(email=email).exists():
        raise Conflicting(f"{email} is invited already; send the invitation again instead")
    if pending.count() >= MOST_PENDING:
        raise Conflicting(f"at most {MOST_PENDING} invitations can be pending")
    inviter = actor.name.removeprefix("user:") if actor.name.startswith("user:") else None
    invitation = Invitation.objects.create(
        tenant=tenant,
        email=email,
        role=role,
        may_see_payloads=may_see_payloads,
        invited_by=User.objects.filter(pk=inviter).first() if inviter else None,
        nonce=secrets.token_hex(16),
        expires_at=timezone.now() + LIFE,
    )
    want(topic=TOPIC, subject=str(invitation.id))
    record(
        action="member.invite", subject=invitation.public_id, tenant_id=tenant.id, actor=actor,
        reason=reason, after=_shown(invitation),
    )  # fmt: skip
    return invitation


@transaction.atomic
def resend_invitation(
    *, tenant_id: uuid.UUID, invitation_id: uuid.UUID, actor: Actor, reason: str
) -> Invitation:
    """Another mail with a fresh link and a fresh week; links sent before end."""
    invitation = _pending(tenant_id, invitation_id)
    may_make(actor, invitation.role)
    now = timezone.now()
    if now < invitation.expires_at - LIFE + BETWEEN_MAILS:
        raise Conflicting("a mail was sent less than a minute ago; wait a moment")
    before = _shown(invitation)
    invitation.nonce = secrets.token_hex(16)
    invitation.expires_at = now + LIFE
    invitation.save(update_fields=["nonce", "expires_at"])
    want(topic=TOPIC, subject=str(invitation.id))
    record(
        action="member.invite_again", subject=invitation.public_id, tenant_id=tenant_id, actor=actor,
        reason=reason, before=before, after=_shown(invitation),
    )  # fmt: skip
    return invitation


@transaction.atomic
def revoke_invitation(
    *, tenant_id: uuid.UUID, invitation_id: uuid.UUID, actor: Actor, reason: str
) -> Invitation:
    """Takes an invitation back: its link ends."""
    invitation = _pending(tenant_id, invitation_id)
    may_make(actor, invitation.role)
    Invitation.objects.filter(pk=invitation.pk).update(revoked_at=Now())
    record(
        action="member.uninvite", subject=invitation.public_id, tenant_id=tenant_id, actor=actor,
        reason=reason, before=_shown(invitation),
    )  # fmt: skip
    return invitation


@transaction.atomic
def accept_invitation(*, token: str, user: User, actor: Actor, reason: str) -> Membership:
    """Makes the person a member. Raises as `open_link`; `Forbidden` for another address.

    Whoever became a member meanwhile stays as they are; the invitation is used up all the same.
    """
    tenant = lock_tenant(open_link(token).tenant_id)
    invitation = open_link(token)  # as it is now, under the lock
    if user.email != invitation.email:
        raise Forbidden(f"this invitation is for {invitation.email}")
    Invitation.objects.filter(pk=invitation.pk).update(accepted_at=Now())
    member = Membership.objects.select_related("tenant").filter(tenant=tenant, user=user).first()
    if member is not None:
        record(
            action="member.use_invitation", subject=invitation.public_id, tenant_id=tenant.id, actor=actor,
            reason=reason, before=_shown(invitation), after={"member": member.public_id, "role": member.role},
        )  # fmt: skip
        return member
    member = Membership.objects.create(
        tenant=tenant, user=user, role=invitation.role, may_see_payloads=invitation.may_see_payloads
    )
    record(
        action="member.join", subject=member.public_id, tenant_id=tenant.id, actor=actor, reason=reason,
        after={**_shown(invitation), "invitation": invitation.public_id},
    )  # fmt: skip
    return member
