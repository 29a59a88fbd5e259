"""Owners hear that their workspace is to be erased, that it begins, and that it is not after all: whatever
rules for notifications there are, and whoever asked for it."""

from __future__ import annotations

import uuid
from datetime import UTC, timedelta
from smtplib import SMTPException

import structlog
from django.conf import settings
from django.core.mail import EmailMessage
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from controlplane.custody.models import Erasure, ErasureState
from controlplane.tenants.models import Membership, Tenant, User
from controlplane.tenants.roles import Role

_LOG = structlog.get_logger(__name__)
#: Outbox topic: owners hear of an erasure.
TOPIC = "mail_erasure"
#: An erasure waits for so long at most for the server of its mail.
_PATIENCE = timedelta(hours=1)
_SUBJECTS = {
    ErasureState.REQUESTED: "is to be erased",
    ErasureState.RUNNING: "is being erased",
    ErasureState.CANCELLED: "is not erased",
}


def mail_erasure(subject: str) -> None:
    """Outbox handler: it was asked for, or cancelled. That it begins is told by the erasure itself, while
    there are owners."""
    erasure = Erasure.objects.filter(pk=uuid.UUID(subject)).first()
    if erasure is not None and erasure.state in (ErasureState.REQUESTED, ErasureState.CANCELLED):
        _send(erasure)


def tell_begun(erasure: Erasure) -> str:
    """Tells the owners that it begins, once; what it waits for."""
    if "owners_told" in erasure.done:
        return ""
    try:
        told = _send(erasure)
    except (OSError, SMTPException) as fault:
        if erasure.began_at is not None and timezone.now() < erasure.began_at + _PATIENCE:
            return f"the mail to its owners: {type(fault).__name__}: {fault}"[:300]
        _LOG.error("owners were not told of an erasure", erasure=str(erasure), error=str(fault))
        told = 0
    erasure.done["owners_told"] = told
    return ""


def _send(erasure: Erasure) -> int:
    """How many owners it goes to."""
    tenant = Tenant.objects.filter(pk=erasure.tenant_id).first()
    owners = Membership.objects.filter(tenant_id=erasure.tenant_id, role=Role.OWNER, user__is_active=True)
    to = sorted(owners.values_list("user__email", flat=True))
    if tenant is None or not to:
        return 0
    text = render_to_string(
        "custody/mail/erasure.txt",
        {
            "state": erasure.state,
            "name": tenant.name,
            "who": _named(erasure.requested_by),
            "due_at": erasure.due_at.astimezone(UTC),
            "page": str(settings.CONSOLE_URL) + reverse("console:erasure", args=(tenant.slug,)),
        },
    )
    called = " ".join(tenant.name.split())
    EmailMessage(f"{called} {_SUBJECTS[ErasureState(erasure.state)]}", text, to=to).send()
    return len(to)


def _named(actor: str) -> str:
    """An actor as people know it."""
    kind, _, who = actor.partition(":")
    if kind == "key":
        return f"the API key {who}"
    if kind == "user":
        person = User.objects.filter(pk=uuid.UUID(who)).first()
        return actor if person is None else person.email
    return "operators"
