"""An event reaches the rules that want it. Runs inside the caller's transaction: whoever tells of a change
tells of it exactly when it is made."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.events.models import AuditEvent
from controlplane.identity import TENANT, encode
from controlplane.notifications.backoff import GIVEN_UP
from controlplane.notifications.kinds import BY_ACTION, BY_NAME
from controlplane.notifications.matching import EVERYTHING, Filters, wants
from controlplane.notifications.models import Delivery, DeliveryState, NotificationEvent, NotificationRule
from controlplane.sql import named_sql

_SQL = named_sql(Path(__file__).parent / "sql" / "notifications.sql")


@dataclass(frozen=True, kw_only=True, slots=True)
class Happened:
    """Something that people may want to hear of. `event_id` is unique within its tenant."""

    event_id: str
    tenant_id: uuid.UUID | None  # None: of no tenant, and for operators only
    kind: str
    source: str
    subject: str
    at: datetime
    actor: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


def rules_for(tenant_id: uuid.UUID | None, kinds: Sequence[str]) -> list[NotificationRule]:
    """Rules that may want events of those kinds: the tenant's, and the operators'."""
    whose = Q(tenant=None) if tenant_id is None else Q(tenant=None) | Q(tenant=tenant_id)
    return list(
        NotificationRule.objects.filter(whose, enabled=True, kinds__overlap=[*kinds, EVERYTHING]).order_by(
            "id"
        )
    )


def tell(happened: Happened, *, rules: Sequence[NotificationRule] | None = None, wake: bool = True) -> int:
    """Has every rule that wants it tell of it, once; how many do. Asked again, nothing more happens. With
    `wake` the messages are sent as soon as they are committed, else when the caller or beat sees to it."""
    asked = rules_for(happened.tenant_id, [happened.kind]) if rules is None else rules
    wanting = [rule for rule in asked if _wants(rule, happened)]
    if not wanting:
        return 0
    with transaction.atomic():
        event, _ = NotificationEvent.objects.get_or_create(
            tenant_id=happened.tenant_id,
            event_id=happened.event_id,
            defaults={
                "kind": happened.kind,
                "source": happened.source,
                "subject": happened.subject[:300],
                "actor": happened.actor[:200],
                "at": happened.at,
                "data": dict(happened.data),
            },
        )
        told = sum(_add(rule, event) for rule in wanting)
        if told and wake:
            wake_at_commit()
    return told


def _wants(rule: NotificationRule, happened: Happened) -> bool:
    kind = BY_NAME.get(happened.kind)
    if kind is None or (rule.tenant_id is not None and not kind.tenants):
        return False
    if rule.tenant_id is not None and rule.tenant_id != happened.tenant_id:
        return False
    return wants(
        kinds=rule.kinds,
        filters=Filters.stored(rule.filters),
        kind=happened.kind,
        subject=happened.subject,
        tenant_id=None if happened.tenant_id is None else encode(TENANT, happened.tenant_id),
        data=happened.data,
    )


def _add(rule: NotificationRule, event: NotificationEvent) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_SQL["claim_event"], {"rule": rule.id, "event": event.id})
        claimed = cursor.fetchone()
        if claimed is None:
            return False
        # What goes into a digest is put there by `digests.gather`.
        if not rule.digest_minutes:
            delivery_id = at_once(rule, kind=event.kind).id
            cursor.execute(_SQL["put"], {"id": claimed[0], "delivery": delivery_id})
    return True


def at_once(rule: NotificationRule, *, kind: str, test: bool = False) -> Delivery:
    """A message that is due now."""
    return Delivery.objects.create(
        rule=rule, state=DeliveryState.WAITING, kind=kind, test=test, give_up_at=timezone.now() + GIVEN_UP
    )


def wake_at_commit() -> None:
    """Has messages sent once this transaction is committed; however many it makes, once."""
    if not any(callback is _wake for _, callback, *_ in connection.run_on_commit):
        transaction.on_commit(_wake)


def _wake() -> None:
    from controlplane.notifications.tasks import wake  # tasks import what sends

    wake()


def heard(event: AuditEvent) -> None:
    """An audit event was written: people may want to hear of what it tells. Who looked at what in the
    operators' pages stays in the audit log."""
    kind = BY_ACTION.get(event.action)
    if kind is None:
        return
    rules = rules_for(event.tenant_id, [kind.name])
    if not rules:
        return
    data = {
        name: value
        for name, value in (("before", event.before), ("after", event.after), ("reason", event.reason))
        if value
    }
    tell(
        Happened(
            event_id=event.public_id,
            tenant_id=event.tenant_id,
            kind=kind.name,
            source="control-plane",
            subject=event.subject,
            at=timezone.now(),
            actor=event.actor,
            data=data,
        ),
        rules=rules,
    )


def watched(
    *,
    kind: str,
    tenant_id: uuid.UUID | None,
    subject: str,
    key: str,
    at: datetime | None = None,
    data: Mapping[str, Any] | None = None,
    rules: Sequence[NotificationRule] | None = None,
) -> int:
    """The control plane found something by looking. `key` tells one finding from another; `rules`: only those
    may tell of it."""
    return tell(
        Happened(
            event_id=f"{kind}:{key}"[:120],
            tenant_id=tenant_id,
            kind=kind,
            source="control-plane",
            subject=subject,
            at=at or timezone.now(),
            data=data or {},
        ),
        rules=rules,
    )
