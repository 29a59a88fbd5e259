"""What billing asks of the project around it; settings name the functions (`BILLING_…`)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.conf import settings
from django.utils.module_loading import import_string


class Actor(Protocol):
    """Who does something, as the audit log names it."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """Billing acting on its own account."""

    name: str = "service:billing"
    source: str = "billing"
    operator: bool = True
    owner: bool = True


BILLING = Service()


def audit(
    *,
    action: str,
    subject: str,
    tenant_id: uuid.UUID | None,
    actor: Actor,
    reason: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Writes an audit event, in the transaction it tells of."""
    import_string(settings.BILLING_AUDIT)(
        action=action, subject=subject, tenant_id=tenant_id, actor=actor, reason=reason,
        before=before, after=after,
    )  # fmt: skip


def note_read(*, tenant_id: uuid.UUID, actor: Actor, what: str) -> None:
    """Says in the tenant's audit log that an operator reads of it: `what` is a path."""
    import_string(settings.BILLING_READ)(tenant_id=tenant_id, actor=actor, what=what)


def want(*, topic: str, subject: str) -> None:
    """Asks for an outside effect once the transaction commits: at least once, one row for a topic and
    subject. `settings.OUTBOX_HANDLERS` names what does it."""
    import_string(settings.BILLING_WANT)(topic=topic, subject=subject)


def people_of(tenants: Sequence[uuid.UUID]) -> Mapping[uuid.UUID, tuple[str, list[str]]]:
    """Each tenant's name and the addresses of its owners; those that are none are left out."""
    found: Mapping[uuid.UUID, tuple[str, list[str]]] = import_string(settings.BILLING_PEOPLE)(tenants)
    return found


def is_going(tenant_id: uuid.UUID) -> bool:
    """Whether a tenant is being erased: nothing of it is exported any more."""
    return bool(import_string(settings.BILLING_GOING)(tenant_id))


def delay_low(*, tenant_id: uuid.UUID, delayed: bool, actor: Actor, reason: str) -> None:
    """Has a tenant's LOW work wait, or go on: what is published in its configuration."""
    import_string(settings.BILLING_DELAY_LOW)(
        tenant_id=tenant_id, delayed=delayed, actor=actor, reason=reason
    )


def cell_regions() -> Mapping[str, str]:
    """The region of each cell, by its name."""
    return dict(import_string(settings.BILLING_CELL_REGIONS)())
