"""Rules of a tenant, and a machine that takes what they tell."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.notifications import rules, sending
from controlplane.notifications.digests import gather
from controlplane.notifications.models import Delivery, NotificationRule
from controlplane.notifications.telling import Happened, tell
from controlplane.tenants.models import Tenant
from tests.component.controlplane.factories import ACTOR, REASON
from tests.component.controlplane.notifications.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def made(tenant: Tenant | None, **more: Any) -> rules.Made:
    """A rule of the tenant, or of operators; a webhook for dead letters unless something else is said."""
    wanted = {
        "name": "on call", "kinds": ["run.dead_lettered"], "filters": {}, "channel": "WEBHOOK", **more
    }  # fmt: skip
    return rules.create_rule(
        tenant_id=tenant.id if tenant else None, wanted=rules.Wanted(**wanted), actor=ACTOR, reason=REASON
    )


def happened(tenant: Tenant, name: str | None = None, **more: Any) -> Happened:
    """A dead letter."""
    return Happened(
        **{
            "event_id": name or f"evt_{uuid.uuid4().hex}", "tenant_id": tenant.id,
            "kind": "run.dead_lettered", "source": "cell/c-1", "subject": "job_1:2026",
            "at": datetime.now(UTC), "data": {"count": 1, "target_id": "tgt_x", "http_status": 500}, **more,
        }
    )  # fmt: skip


def told(tenant: Tenant, name: str | None = None, **more: Any) -> int:
    return tell(happened(tenant, name, **more))


def sent() -> int:
    """Sends what is due; how many tries that were."""
    return sending.drain(5)


def due_now(**which: Any) -> None:
    """What waits for a later try is due at once, and no receiver is held."""
    gather()
    Delivery.objects.filter(state__in=["WAITING", "COLLECTING"], **which).update(due_at=datetime.now(UTC))
    NotificationRule.objects.update(held_until=None)
