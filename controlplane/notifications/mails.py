"""Mails about events, and about rules that were stopped."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from smtplib import SMTPException

from django.conf import settings
from django.core.mail import EmailMessage
from django.template.loader import render_to_string
from django.urls import reverse

from controlplane.notifications.models import Delivery, NotificationEvent, NotificationRule
from controlplane.notifications.webhooks import Outcome
from controlplane.notifications.wording import sentence
from controlplane.tenants.models import Membership, User
from controlplane.tenants.roles import Role

#: Outbox topic: people hear that a rule was stopped.
STOPPED = "mail_notification_rule_stopped"


def addresses(rule: NotificationRule) -> list[str]:
    """Those of a rule's addresses whose people may still hear of it: members, or operators."""
    if rule.tenant_id is None:
        known = User.objects.filter(is_staff=True, is_active=True, email__in=rule.emails)
        return sorted(known.values_list("email", flat=True))
    members = Membership.objects.filter(
        tenant=rule.tenant_id, user__is_active=True, user__email__in=rule.emails
    )
    return sorted(members.values_list("user__email", flat=True))


def sender_of(delivery: Delivery, events: Sequence[NotificationEvent]) -> Callable[[], Outcome]:
    """What sends the mail of a message. The same message has the same Message-ID."""
    rule = delivery.rule
    to = addresses(rule)
    called = "Operators" if rule.tenant is None else rule.tenant.name
    lines = [(event, sentence(event)) for event in events]
    text = render_to_string(
        "notifications/mail/events.txt",
        {"rule": rule, "lines": lines, "called": called, "page": page_of(rule), "test": delivery.test},
    )
    said = lines[0][1] if len(lines) == 1 else f"{len(lines)} events"
    subject = " ".join(f"{called}: {said}".split())[:200]
    headers = {"Message-ID": f"<{delivery.public_id}@clockhouse>"}

    def send() -> Outcome:
        began = time.monotonic()
        if not to:
            said = "none of its addresses is a member's any more"
            return Outcome(ms=0, error=said, for_good=True, gone=True)
        try:
            EmailMessage(subject, text, to=to, headers=headers).send()
        except (OSError, SMTPException) as fault:
            said = f"{type(fault).__name__}: {fault}"[:300]
            return Outcome(ms=round(1000 * (time.monotonic() - began)), error=said)
        return Outcome(ms=round(1000 * (time.monotonic() - began)), response=f"sent to {len(to)}")

    return send


def page_of(rule: NotificationRule) -> str:
    """Where people look at a rule."""
    if rule.tenant is None:
        return str(settings.CONSOLE_URL) + reverse("operators:notification", args=(rule.public_id,))
    return str(settings.CONSOLE_URL) + reverse(
        "console:notification", args=(rule.tenant.slug, rule.public_id)
    )


def mail_stopped(subject: str) -> None:
    """Outbox handler: a rule was stopped, and those who can mend it hear of it by another way."""
    rule = NotificationRule.objects.select_related("tenant").filter(pk=uuid.UUID(subject)).first()
    if rule is None or rule.enabled:
        return
    if rule.tenant_id is None:
        people = User.objects.filter(is_staff=True, is_active=True).values_list("email", flat=True)
    else:
        people = Membership.objects.filter(
            tenant=rule.tenant_id, role__in=[Role.OWNER, Role.ADMIN], user__is_active=True
        ).values_list("user__email", flat=True)
    to = sorted(people)[:50]
    if not to:
        return
    text = render_to_string("notifications/mail/stopped.txt", {"rule": rule, "page": page_of(rule)})
    EmailMessage(f"The notification rule {' '.join(rule.name.split())} was stopped", text, to=to).send()
