"""The three lines every use-case ends with. All run inside the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from django.db import connection, transaction

from controlplane.actors import Actor
from controlplane.events.models import AuditEvent, Change
from controlplane.sql import named_sql

_OUTBOX = named_sql(Path(__file__).parent / "sql" / "outbox.sql")


def record(
    *,
    action: str,
    subject: str,
    tenant_id: uuid.UUID | None,
    actor: Actor,
    reason: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> AuditEvent:
    """Writes the audit event of a change. Secrets never belong into `before` and `after`."""
    from controlplane.notifications.telling import heard  # which reads what this has written

    made = AuditEvent.objects.create(
        action=action,
        subject=subject,
        tenant_id=tenant_id,
        actor=actor.name,
        source=actor.source,
        reason=reason,
        before=before,
        after=after,
    )
    heard(made)
    return made


def publish(kind: Change.Kind, key: str) -> None:
    """Tells routers that a key, tenant or cell changed."""
    Change.objects.create(kind=kind, key=key)


def want(*, topic: str, subject: str) -> None:
    """Asks for an outside effect (`controlplane.events.outbox`), begun once this commits."""
    from controlplane.events.tasks import wake  # tasks import handlers, which import use-cases

    with connection.cursor() as cursor:
        cursor.execute(_OUTBOX["want"], {"topic": topic, "subject": subject})
        (item_id,) = cursor.fetchone()
    transaction.on_commit(partial(wake, item_id))
