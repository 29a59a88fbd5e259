"""Rules: made, edited, tried, stopped; their secrets; messages sent again."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from controlplane.actors import Actor, service
from controlplane.errors import Conflicting, Invalid, NotFound, VersionMismatch, invalid
from controlplane.events.recording import record, want
from controlplane.identity import TENANT, encode, new_id
from controlplane.locks import lock_tenant
from controlplane.notifications.backoff import GIVEN_UP
from controlplane.notifications.checking import Wanted, faults_of
from controlplane.notifications.envelope import SECRET_BYTES, show_secret
from controlplane.notifications.kinds import OF_CELLS, TEST
from controlplane.notifications.mails import STOPPED
from controlplane.notifications.matching import EVERYTHING
from controlplane.notifications.models import (
    OPEN,
    Channel,
    DeliveredEvent,
    Delivery,
    DeliveryState,
    NotificationEvent,
    NotificationRule,
)
from controlplane.notifications.telling import at_once, wake_at_commit
from controlplane.sql import named_sql
from controlplane.topology.cell_keys import installation_sealer

_SQL = named_sql(Path(__file__).parent / "sql" / "notifications.sql")
#: Rules of one tenant, and how long two secrets may sign together.
MOST_RULES = 50
LONGEST_OVERLAP = timedelta(days=30)
USUAL_OVERLAP = timedelta(hours=24)


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """A rule and, this once, its secret; None where it has none, or nobody may see it again."""

    rule: NotificationRule
    secret: str | None


def _shown(rule: NotificationRule) -> dict[str, Any]:
    """For the audit log; an address may hold a token in its query."""
    return {
        "name": rule.name,
        "enabled": rule.enabled,
        "kinds": list(rule.kinds),
        "filters": rule.filters,
        "channel": rule.channel,
        "url": rule.url.partition("?")[0],
        "emails": list(rule.emails),
        "digest_minutes": rule.digest_minutes,
    }


def _cleaned(wanted: Wanted) -> dict[str, Any]:
    return {
        "name": wanted.name.strip(),
        "kinds": list(wanted.kinds),
        "filters": {name: value for name, value in wanted.filters.items() if value},
        "channel": wanted.channel,
        "url": wanted.url,
        "emails": [email.lower() for email in wanted.emails],
        "digest_minutes": wanted.digest_minutes,
        "enabled": wanted.enabled,
    }


def _context(rule_id: uuid.UUID) -> bytes:
    return f"notification_rule:{rule_id}".encode()


def _new_secret(rule_id: uuid.UUID) -> tuple[str, bytes]:
    raw = os.urandom(SECRET_BYTES)
    return show_secret(raw), installation_sealer().seal(raw, context=_context(rule_id))


def open_secrets(rule: NotificationRule) -> list[bytes]:
    """The secrets that sign now, newest first."""
    sealed = [rule.sealed_secret]
    if (
        rule.sealed_old_secret is not None
        and rule.old_secret_until
        and rule.old_secret_until > timezone.now()
    ):
        sealed.append(rule.sealed_old_secret)
    sealer = installation_sealer()
    return [sealer.open(bytes(one), context=_context(rule.id)) for one in sealed if one is not None]


def find_rule(rule_id: uuid.UUID | None, *, tenant_id: uuid.UUID | None) -> NotificationRule:
    """A rule of a tenant, or of the operators (None); of others there is none."""
    found = (
        None
        if rule_id is None
        else NotificationRule.objects.select_related("tenant").filter(pk=rule_id, tenant=tenant_id).first()
    )
    if found is None:
        raise NotFound("no such notification rule")
    return found


def _locked(
    rule_id: uuid.UUID, tenant_id: uuid.UUID | None, expected_version: int | None = None
) -> NotificationRule:
    find_rule(rule_id, tenant_id=tenant_id)
    rule = NotificationRule.objects.select_for_update(no_key=True).get(pk=rule_id)
    if expected_version is not None and rule.version != expected_version:
        raise VersionMismatch(rule.version)
    return rule


def _read_from_now(rule: NotificationRule) -> None:
    """What happens behind this commit is told, though cells' feeds are read a moment later."""
    if rule.enabled and ({*rule.kinds} & {*OF_CELLS, EVERYTHING}):
        with connection.cursor() as cursor:
            cursor.execute(_SQL["read_from_now"], {"tenant": rule.tenant_id})


@transaction.atomic
def create_rule(*, tenant_id: uuid.UUID | None, wanted: Wanted, actor: Actor, reason: str) -> Made:
    """A new rule; with the channel WEBHOOK its secret is in the answer, once."""
    if faults := faults_of(wanted, tenant_id=tenant_id):
        raise Invalid(faults)
    if tenant_id is not None:
        lock_tenant(tenant_id)
    if NotificationRule.objects.filter(tenant=tenant_id).count() >= MOST_RULES:
        raise Conflicting(f"there are {MOST_RULES} notification rules already, which is the most")
    rule_id = new_id()
    secret, sealed = _new_secret(rule_id) if wanted.channel == Channel.WEBHOOK else (None, None)
    rule = NotificationRule.objects.create(
        id=rule_id, tenant_id=tenant_id, sealed_secret=sealed, created_by=actor.name, **_cleaned(wanted)
    )
    rule.refresh_from_db()
    _read_from_now(rule)
    record(
        action="notification_rule.create", subject=rule.public_id, tenant_id=tenant_id, actor=actor,
        reason=reason, after=_shown(rule),
    )  # fmt: skip
    return Made(rule=rule, secret=secret)


@transaction.atomic
def edit_rule(
    *,
    tenant_id: uuid.UUID | None,
    rule_id: uuid.UUID,
    changes: Mapping[str, Any],
    expected_version: int | None = None,
    actor: Actor,
    reason: str,
) -> Made:
    """Changes what is named. What a rule that is disabled has not sent is not told later. A rule that becomes
    a webhook gets its secret with the answer."""
    rule = _locked(rule_id, tenant_id, expected_version)
    before = _shown(rule)
    now = Wanted.of(rule)
    wanted = Wanted(**{name: changes.get(name, getattr(now, name)) for name in Wanted.__slots__})
    if faults := faults_of(wanted, tenant_id=tenant_id):
        raise Invalid(faults)
    cleaned = _cleaned(wanted)
    secret = None
    if cleaned["channel"] != rule.channel:
        rule.sealed_secret = rule.sealed_old_secret = rule.old_secret_until = None
        if cleaned["channel"] == Channel.WEBHOOK:
            secret, rule.sealed_secret = _new_secret(rule.id)
    for name, value in cleaned.items():
        setattr(rule, name, value)
    if _shown(rule) == before and rule.url == now.url and secret is None:
        return Made(rule=rule, secret=None)
    if rule.enabled:
        rule.stopped_because, rule.failures, rule.held_until = "", 0, None
    rule.version += 1
    rule.save()
    _read_from_now(rule)
    unsent = 0 if rule.enabled else _end_unsent(rule.id)
    record(
        action="notification_rule.edit", subject=rule.public_id, tenant_id=tenant_id, actor=actor,
        reason=reason, before=before, after={**_shown(rule), **({"unsent": unsent} if unsent else {})},
    )  # fmt: skip
    return Made(rule=rule, secret=secret)


@transaction.atomic
def remove_rule(*, tenant_id: uuid.UUID | None, rule_id: uuid.UUID, actor: Actor, reason: str) -> int:
    """No more of it, nor of its delivery log; how many messages were not sent yet."""
    rule = _locked(rule_id, tenant_id)
    # What it leaves may be millions of rows: they go in pages, later.
    unsent = _end_unsent(rule.id)
    record(
        action="notification_rule.remove", subject=rule.public_id, tenant_id=tenant_id, actor=actor,
        reason=reason, before={**_shown(rule), "unsent": unsent},
    )  # fmt: skip
    NotificationRule.objects.filter(pk=rule.pk).update(enabled=False, removed_at=timezone.now())
    return unsent


@transaction.atomic
def rotate_secret(
    *,
    tenant_id: uuid.UUID | None,
    rule_id: uuid.UUID,
    overlap: timedelta = USUAL_OVERLAP,
    actor: Actor,
    reason: str,
) -> Made:
    """A new secret; messages are signed with both until the overlap is over. While one lasts the next
    rotation has none: it would end the overlap that was promised."""
    if not timedelta(0) <= overlap <= LONGEST_OVERLAP:
        raise invalid("/overlap_seconds", f"from 0 to {LONGEST_OVERLAP.days} days")
    rule = _locked(rule_id, tenant_id)
    if rule.channel != Channel.WEBHOOK:
        raise Conflicting("only webhooks have a secret")
    if overlap and rule.old_secret_until is not None and rule.old_secret_until > timezone.now():
        raise Conflicting(
            f"two secrets sign until {rule.old_secret_until:%Y-%m-%d %H:%M} UTC: rotate again then, or now"
            " without an overlap, which ends both"
        )
    secret, sealed = _new_secret(rule.id)
    rule.sealed_old_secret, rule.sealed_secret = rule.sealed_secret, sealed
    rule.old_secret_until = timezone.now() + overlap
    rule.version += 1
    rule.save()
    record(
        action="notification_rule.rotate_secret", subject=rule.public_id, tenant_id=tenant_id, actor=actor,
        reason=reason, after={"old_secret_until": rule.old_secret_until.isoformat()},
    )  # fmt: skip
    return Made(rule=rule, secret=secret)


@transaction.atomic
def test_rule(*, tenant_id: uuid.UUID | None, rule_id: uuid.UUID, actor: Actor, reason: str) -> Delivery:
    """Sends one event that says it is a test, once, whether or not the rule is enabled."""
    rule = _locked(rule_id, tenant_id)
    under_way = Delivery.objects.filter(rule=rule, test=True, state__in=OPEN).count()
    if under_way >= 3:
        raise Conflicting("three tests are under way already")
    event = NotificationEvent.objects.create(
        event_id=f"test_{new_id().hex}",
        tenant_id=tenant_id,
        kind=TEST,
        source="control-plane",
        subject=rule.public_id,
        actor=actor.name,
        at=timezone.now(),
        data={"rule": rule.name, **({"tenant_id": encode(TENANT, tenant_id)} if tenant_id else {})},
    )
    delivery = at_once(rule, kind=TEST, test=True)
    DeliveredEvent.objects.create(rule=rule, event=event, delivery=delivery)
    record(
        action="notification_rule.test", subject=rule.public_id, tenant_id=tenant_id, actor=actor,
        reason=reason, after={"delivery": delivery.public_id},
    )  # fmt: skip
    wake_at_commit()
    return delivery


def find_delivery(delivery_id: uuid.UUID | None, *, tenant_id: uuid.UUID | None) -> Delivery:
    """A message of a tenant's rules, or of the operators'; of others there is none."""
    found = (
        None
        if delivery_id is None
        else Delivery.objects.select_related("rule__tenant")
        .filter(pk=delivery_id, rule__tenant=tenant_id, rule__removed_at=None)
        .first()
    )
    if found is None:
        raise NotFound("no such delivery")
    return found


@transaction.atomic
def redeliver(*, tenant_id: uuid.UUID | None, delivery_id: uuid.UUID, actor: Actor, reason: str) -> Delivery:
    """Sends a message again, under its id and with its content, for another day if need be."""
    delivery = find_delivery(delivery_id, tenant_id=tenant_id)
    rule = NotificationRule.objects.select_for_update(no_key=True).filter(pk=delivery.rule_id).first()
    locked = Delivery.objects.select_for_update().filter(pk=delivery.pk).first()
    if rule is None or locked is None:  # removed just now
        raise NotFound("no such delivery")
    delivery = locked
    if delivery.state in OPEN:
        raise Conflicting("it is still to be sent")
    if not rule.enabled and not delivery.test:
        raise Conflicting("its rule is disabled: enable it first")
    if not delivery.contents.exists():
        raise Conflicting("what was in it is kept no more")
    was, now = delivery.state, timezone.now()
    Delivery.objects.filter(pk=delivery.pk).update(
        state=DeliveryState.WAITING, due_at=now, give_up_at=now + GIVEN_UP, lease=None, leased_until=None
    )
    NotificationRule.objects.filter(pk=rule.pk).update(held_until=None)
    record(
        action="notification_delivery.redeliver", subject=delivery.public_id, tenant_id=tenant_id,
        actor=actor, reason=reason, before={"state": was}, after={"state": DeliveryState.WAITING.value},
    )  # fmt: skip
    wake_at_commit()
    delivery.refresh_from_db()
    return delivery


def _end_unsent(rule_id: uuid.UUID) -> int:
    """How many messages of a disabled rule are given up."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["end_unsent"], {"rule": rule_id})
        return cursor.rowcount


def stop_rule(rule_id: uuid.UUID, *, because: str) -> None:
    """The control plane disables a rule whose receiver is no more; those who can mend it get a mail.
    Call in a transaction."""
    stopped = NotificationRule.objects.filter(pk=rule_id, enabled=True).update(
        enabled=False, stopped_because=because[:500], version=F("version") + 1
    )
    if not stopped:
        return
    unsent = _end_unsent(rule_id)
    rule = NotificationRule.objects.get(pk=rule_id)
    record(
        action="notification_rule.stop", subject=rule.public_id, tenant_id=rule.tenant_id,
        actor=service("notifications"), reason=because[:500],
        before={"enabled": True}, after={"enabled": False, "name": rule.name, "unsent": unsent},
    )  # fmt: skip
    want(topic=STOPPED, subject=str(rule_id))
