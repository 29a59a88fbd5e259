"""Signing in as a tenant: begun and ended by operators, announced on every page, audited.

The operator stays who they are: cells and audit log see `user:<operator>`. A visit holds a member's
daily scopes, none over people, keys, settings or the approval of targets, and no payloads unless the
tenant grants that. Where a tenant's calls go, and with which credential, is nothing a visit may change
(`TARGETS_CLOSED`), though whoever may edit jobs may edit targets. The end of a visit that ran out is
audited by whoever notices it first, with the instant at which it was over.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from cells.contract import Scope
from controlplane.actors import Actor
from controlplane.errors import Conflicting, Fault, Forbidden, Invalid, invalid
from controlplane.events.recording import record
from controlplane.locks import lock_tenant
from controlplane.operators.models import PayloadGrant, SupportVisit
from controlplane.tenants.models import Tenant, User

_CLOCK = Actor(name="service:operators", operator=True, source="control-plane")
#: Said where a visit meets what it may not change.
TARGETS_CLOSED = "A visit of Clockhouse support changes no targets: where calls go is the tenant's alone."
VISIT_MINUTES = (15, 30, 60, 120)
GRANT_HOURS = (1, 4, 24, 72)
_SCOPES = frozenset(
    {
        Scope.JOBS_READ,
        Scope.JOBS_WRITE,
        Scope.JOBS_TRIGGER,
        Scope.WORKFLOWS_READ,
        Scope.WORKFLOWS_WRITE,
        Scope.USAGE_READ,
    }
)


@dataclass(frozen=True, kw_only=True)
class Guest:
    """Stands where a membership stands while an operator visits."""

    visit: SupportVisit
    tenant: Tenant
    user: User
    may_see_payloads: bool
    role: str = "support"

    @property
    def scopes(self) -> frozenset[str]:
        return _SCOPES | ({Scope.PAYLOADS_READ} if self.may_see_payloads else set())

    def get_role_display(self) -> str:
        return "Support"


def payload_grant(tenant_id: uuid.UUID) -> PayloadGrant | None:
    """The tenant's grant, if it holds now."""
    return PayloadGrant.objects.filter(tenant=tenant_id, until__gt=timezone.now()).first()


def guest_of(user: User, slug: str) -> Guest | None:
    """The operator's open visit to a tenant."""
    if not (user.is_staff and user.is_active):
        return None
    visit = (
        SupportVisit.objects.select_related("tenant__quota", "tenant__placement__cell")
        .filter(operator=user.pk, tenant__slug=slug, ended_at=None)
        .first()
    )
    if visit is None:
        return None
    if visit.expires_at <= timezone.now():
        _time_over(visit)
        return None
    return Guest(
        visit=visit,
        tenant=visit.tenant,
        user=user,
        may_see_payloads=payload_grant(visit.tenant_id) is not None,
    )


@transaction.atomic
def begin_visit(
    *, tenant_id: uuid.UUID, operator: User, minutes: int, actor: Actor, reason: str
) -> SupportVisit:
    """Opens the tenant's console to an operator. The reason is shown to the tenant."""
    faults = []
    if not reason.strip():
        faults.append(Fault(pointer="/reason", detail="say why; the tenant reads it"))
    if len(reason) > 300:
        faults.append(Fault(pointer="/reason", detail="at most 300 characters"))
    if minutes not in VISIT_MINUTES:
        faults.append(Fault(pointer="/minutes", detail=f"one of {', '.join(map(str, VISIT_MINUTES))}"))
    if faults:
        raise Invalid(faults)
    if not (operator.is_staff and operator.is_active and actor.operator):
        raise Forbidden("only operators visit tenants")
    tenant = lock_tenant(tenant_id)
    now = timezone.now()
    open_one = SupportVisit.objects.filter(operator=operator, tenant=tenant, ended_at=None).first()
    if open_one is not None and open_one.expires_at > now:
        raise Conflicting("you are signed in there already")
    if open_one is not None:
        _time_over(open_one)
    visit = SupportVisit.objects.create(
        operator=operator,
        tenant=tenant,
        reason=reason.strip(),
        started_at=now,
        expires_at=now + timedelta(minutes=minutes),
    )
    record(
        action="support.begin", subject=str(visit.id), tenant_id=tenant.id, actor=actor,
        reason=visit.reason, after={"until": visit.expires_at.isoformat()},
    )  # fmt: skip
    return visit


@transaction.atomic
def _time_over(visit: SupportVisit) -> bool:
    """Ends a visit that ran out, and says so in the audit log: once, whoever notices it."""
    closed = SupportVisit.objects.filter(pk=visit.pk, ended_at=None).update(ended_at=visit.expires_at)
    if closed:
        record(
            action="support.end", subject=str(visit.id), tenant_id=visit.tenant_id, actor=_CLOCK,
            reason="time over", after={"ended_at": visit.expires_at.isoformat()},
        )  # fmt: skip
    return bool(closed)


@transaction.atomic
def end_visit(*, tenant_id: uuid.UUID, operator: User, actor: Actor, reason: str) -> bool:
    """Ends an operator's visit. False: there was none."""
    lock_tenant(tenant_id)
    visit = SupportVisit.objects.filter(tenant=tenant_id, operator=operator, ended_at=None).first()
    if visit is None:
        return False
    if visit.expires_at <= timezone.now():
        _time_over(visit)
        return False
    SupportVisit.objects.filter(pk=visit.pk).update(ended_at=Now())
    record(
        action="support.end", subject=str(visit.id), tenant_id=tenant_id, actor=actor, reason=reason
    )  # fmt: skip
    return True


def record_act(guest: Guest, *, method: str, path: str) -> None:
    """Writes down what an operator is about to ask of the tenant's cell: which act on what, no payloads."""
    record(
        action="support.act",
        subject=path[:200],
        tenant_id=guest.tenant.id,
        actor=Actor(name=guest.user.actor_name, operator=True, source="console"),
        reason=guest.visit.reason,
        after={"visit": str(guest.visit.id), "method": method, "path": path},
    )


@transaction.atomic
def end_expired_visits() -> int:
    """Writes down the end of visits whose time is over; says how many."""
    over = SupportVisit.objects.select_for_update(skip_locked=True).filter(
        ended_at=None, expires_at__lte=timezone.now()
    )
    return sum(_time_over(visit) for visit in over[:500])


@transaction.atomic
def grant_payloads(*, tenant_id: uuid.UUID, hours: int, actor: Actor, reason: str) -> PayloadGrant:
    """Lets visiting operators see payloads for some hours. 0 takes it back at once."""
    if hours not in (0, *GRANT_HOURS):
        raise invalid("/hours", f"one of 0, {', '.join(map(str, GRANT_HOURS))}")
    tenant = lock_tenant(tenant_id)
    before = payload_grant(tenant_id)
    until = timezone.now() + timedelta(hours=hours)
    grant, _ = PayloadGrant.objects.update_or_create(
        tenant=tenant, defaults={"until": until, "granted_by": actor.name}
    )
    record(
        action="support.grant_payloads" if hours else "support.withdraw_payloads",
        subject=tenant.public_id, tenant_id=tenant_id, actor=actor, reason=reason,
        before={"until": before.until.isoformat() if before else None},
        after={"until": until.isoformat() if hours else None},
    )  # fmt: skip
    return grant
