"""Mails about members. Outbox handlers: sent after the commit, tried again while the server is away."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.core.mail import EmailMessage
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from controlplane.tenants.actions.invitations import link_token
from controlplane.tenants.models import Invitation


def mail_invitation(subject: str) -> None:
    """Sends the newest link of an invitation that is still pending."""
    invitation = (
        Invitation.objects.select_related("tenant", "invited_by")
        .filter(pk=uuid.UUID(subject), accepted_at=None, revoked_at=None)
        .first()
    )
    if invitation is None or invitation.expires_at <= timezone.now():
        return
    link = settings.CONSOLE_URL + reverse("console:invitation", args=(link_token(invitation),))
    text = render_to_string("mail/invitation.txt", {"invitation": invitation, "link": link})
    # A subject is one line, whatever a name was when it was stored.
    called = " ".join(invitation.tenant.name.split())
    EmailMessage(f"Join {called} on Clockhouse", text, to=[invitation.email]).send()
    Invitation.objects.filter(pk=invitation.pk).update(sent_at=timezone.now())
