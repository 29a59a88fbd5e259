"""Tenants: created, described, suspended, resumed, given quotas."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from controlplane.actors import Actor
from controlplane.errors import Conflicting, Fault, Invalid, one_line
from controlplane.events.recording import record
from controlplane.identity import new_id
from controlplane.locks import lock_home_region, lock_tenant
from controlplane.ownership import OwnershipStore
from controlplane.tenants.changes import announce, tenant_changed
from controlplane.tenants.models import SLUG, Quota, Tenant, TenantState
from controlplane.topology.actions.placement import place_tenant, raise_beyond_headroom
from controlplane.topology.models import Region, Site
from controlplane.workspace.pool import claim

REGION_POLICIES = ("HOME_ASYNC", "STRICT", "SINGLE_REGION")
#: A year.
LONGEST_DEADLINE_SECONDS = 366 * 86_400
#: The widest numbers that cells and routers take.
_LARGEST = {"pending_timers": 10**12}
_SMALLEST = {"job_runs_per_second": 1, "running_runs": 1, "api_requests_per_second": 1}


def _quota_faults(quotas: Mapping[str, int]) -> list[Fault]:
    faults = []
    for name, value in quotas.items():
        pointer = f"/quotas/{name}"
        if name not in Quota.NAMES:
            faults.append(Fault(pointer=pointer, detail=f"is no quota; there are {', '.join(Quota.NAMES)}"))
            continue
        least, most = _SMALLEST.get(name, 0), _LARGEST.get(name, 1_000_000)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            detail = f"is {str(value)[:40]}; it is to be a whole number from {least} to {most}"
            faults.append(Fault(pointer=pointer, detail=detail))
    return faults


def _policy_faults(policy: str | None) -> list[Fault]:
    if policy is None or policy in REGION_POLICIES:
        return []
    return [
        Fault(
            pointer="/default_region_policy",
            detail=f"{policy[:40]} is none; there are {', '.join(REGION_POLICIES)}",
        )
    ]


def _check_regions(tenant: Tenant, policy: str | None) -> None:
    """Jobs that say nothing would be refused one by one where their cell has nobody to confirm them."""
    if policy == "STRICT" and Site.objects.filter(cell__placements__tenant=tenant).count() < 2:
        detail = "STRICT needs a cell with sites in several regions; the tenant's has one"
        raise Invalid([Fault(pointer="/default_region_policy", detail=detail)])


def _name_faults(name: str | None) -> list[Fault]:
    if name is None or (0 < len(name.strip()) <= 120 and one_line(name.strip())):
        return []
    return [Fault(pointer="/name", detail="1 to 120 characters, in one line and without control characters")]


@transaction.atomic
def create_tenant(
    *,
    slug: str,
    name: str,
    home_region: str,
    quotas: Mapping[str, int] | None = None,
    default_region_policy: str = "HOME_ASYNC",
    dedicated: bool = False,
    cell: str | None = None,
    override: bool = False,
    store: OwnershipStore | None = None,
    actor: Actor,
    reason: str,
) -> Tenant:
    """A new tenant: workspace claimed from the pool, placed on a cell, its cell told.

    All or nothing: where no cell fits or the ownership store is away, there is no tenant. `override`: even
    where the region could then not lose a cell any more.
    """
    faults = [*_name_faults(name), *_quota_faults(quotas or {}), *_policy_faults(default_region_policy)]
    try:
        SLUG(slug)
    except ValidationError as e:
        faults.append(Fault(pointer="/slug", detail=e.messages[0]))
    if not Region.objects.filter(pk=home_region).exists():
        faults.append(Fault(pointer="/home_region", detail="no such region"))
    if faults:
        raise Invalid(faults)
    if Tenant.objects.filter(slug=slug).exists():
        raise Conflicting(f"the slug {slug} is taken")
    tenant_id = new_id()
    tenant = Tenant(
        id=tenant_id,
        slug=slug,
        name=name.strip(),
        home_region_id=home_region,
        default_region_policy=default_region_policy,
        schema_name=claim(tenant_id),
    )
    try:
        with transaction.atomic():
            tenant.save()
    except IntegrityError as e:
        raise Conflicting(f"the slug {slug} is taken") from e
    quota = Quota.objects.create(tenant=tenant, **(quotas or {}))
    record(
        action="tenant.create", subject=tenant.public_id, tenant_id=tenant.id, actor=actor, reason=reason,
        after={"slug": slug, "name": tenant.name, "home_region": home_region, "quotas": quota.as_dict(),
               "default_region_policy": default_region_policy},
    )  # fmt: skip
    place_tenant(
        tenant=tenant, dedicated=dedicated, cell=cell, override=override, store=store, actor=actor,
        reason=reason,
    )  # fmt: skip
    _check_regions(tenant, default_region_policy)
    announce(tenant)
    return tenant


@transaction.atomic
def update_tenant(
    *,
    tenant_id: uuid.UUID,
    name: str | None = None,
    default_region_policy: str | None = None,
    default_window_seconds: int | None = None,
    default_once_window_seconds: int | None = None,
    compensation_deadline_seconds: int | None = None,
    expected_version: int | None = None,
    actor: Actor,
    reason: str,
) -> Tenant:
    """Changes what a tenant's own admins may change. None leaves a field as it is."""
    faults = [*_name_faults(name), *_policy_faults(default_region_policy)]
    windows = {
        "default_window_seconds": default_window_seconds,
        "default_once_window_seconds": default_once_window_seconds,
    }
    for field, seconds in windows.items():
        if seconds is not None and not 0 < seconds <= 86_400:
            faults.append(Fault(pointer=f"/{field}", detail="from 1 to 86400"))
    deadline = compensation_deadline_seconds
    if deadline is not None and not 0 < deadline <= LONGEST_DEADLINE_SECONDS:
        detail = f"from 1 to {LONGEST_DEADLINE_SECONDS}"
        faults.append(Fault(pointer="/compensation_deadline_seconds", detail=detail))
    if faults:
        raise Invalid(faults)
    tenant = lock_tenant(tenant_id, expected_version=expected_version)
    wanted = {
        "name": None if name is None else name.strip(),
        "default_region_policy": default_region_policy,
        **windows,
        "compensation_deadline_seconds": deadline,
    }
    _check_regions(tenant, default_region_policy)
    changes = {f: v for f, v in wanted.items() if v is not None and getattr(tenant, f) != v}
    if not changes:
        return tenant
    before = {f: getattr(tenant, f) for f in changes}
    for field, value in changes.items():
        setattr(tenant, field, value)
    tenant_changed(tenant)
    record(
        action="tenant.update", subject=tenant.public_id, tenant_id=tenant.id, actor=actor, reason=reason,
        before=before, after=changes,
    )  # fmt: skip
    return tenant


@transaction.atomic
def set_quotas(
    *,
    tenant_id: uuid.UUID,
    quotas: Mapping[str, int],
    expected_version: int | None = None,
    override: bool = False,
    actor: Actor,
    reason: str,
) -> Tenant:
    """Sets the given quotas; the others stay. Operators only.

    More runs a second are refused where its cell may not promise them, or its region could then not lose a
    cell any more; `override` promises them all the same, and is written into the audit log.
    """
    if faults := _quota_faults(quotas):
        raise Invalid(faults)
    if "job_runs_per_second" in quotas:
        lock_home_region(tenant_id)
    tenant = lock_tenant(tenant_id, expected_version=expected_version)
    quota = Quota.objects.get(tenant=tenant)
    changes = {n: v for n, v in quotas.items() if getattr(quota, n) != v}
    if not changes:
        return tenant
    before = {n: getattr(quota, n) for n in changes}
    beyond: list[str] = []
    if "job_runs_per_second" in changes:
        beyond = raise_beyond_headroom(
            tenant, before=before["job_runs_per_second"], after=changes["job_runs_per_second"]
        )
    if beyond and not override:
        raise Conflicting(f"the quota does not fit: {'; '.join(beyond)}; an operator may override this")
    for name, value in changes.items():
        setattr(quota, name, value)
    quota.save()
    tenant_changed(tenant)
    record(
        action="tenant.set_quotas", subject=tenant.public_id, tenant_id=tenant.id, actor=actor,
        reason=reason, before=before, after=changes | ({"overridden": beyond} if beyond else {}),
    )  # fmt: skip
    return tenant


@transaction.atomic
def _set_state(
    *,
    tenant_id: uuid.UUID,
    state: TenantState,
    action: str,
    expected_version: int | None,
    actor: Actor,
    reason: str,
) -> Tenant:
    tenant = lock_tenant(tenant_id, expected_version=expected_version)
    before = tenant.state
    if before == state:
        return tenant
    tenant.state = state
    tenant_changed(tenant)
    record(
        action=action, subject=tenant.public_id, tenant_id=tenant.id, actor=actor, reason=reason,
        before={"state": before}, after={"state": state.value},
    )  # fmt: skip
    return tenant


def suspend_tenant(
    *, tenant_id: uuid.UUID, expected_version: int | None = None, actor: Actor, reason: str
) -> Tenant:
    """Nothing of the tenant starts any more; everything is kept."""
    return _set_state(
        tenant_id=tenant_id, state=TenantState.SUSPENDED, action="tenant.suspend",
        expected_version=expected_version, actor=actor, reason=reason,
    )  # fmt: skip


def resume_tenant(
    *, tenant_id: uuid.UUID, expected_version: int | None = None, actor: Actor, reason: str
) -> Tenant:
    """Works again."""
    return _set_state(
        tenant_id=tenant_id, state=TenantState.ACTIVE, action="tenant.resume",
        expected_version=expected_version, actor=actor, reason=reason,
    )  # fmt: skip


@transaction.atomic
def _set_paused(
    *, tenant_id: uuid.UUID, paused: bool, expected_version: int | None, actor: Actor, reason: str
) -> Tenant:
    tenant = lock_tenant(tenant_id, expected_version=expected_version)
    before = tenant.paused_at
    if (before is not None) == paused:
        return tenant
    tenant.paused_at = timezone.now() if paused else None
    tenant_changed(tenant)
    record(
        action="tenant.pause_work" if paused else "tenant.resume_work", subject=tenant.public_id,
        tenant_id=tenant.id, actor=actor, reason=reason,
        before={"paused_at": before and before.isoformat()},
        after={"paused_at": tenant.paused_at and tenant.paused_at.isoformat()},
    )  # fmt: skip
    return tenant


def pause_work(
    *, tenant_id: uuid.UUID, expected_version: int | None = None, actor: Actor, reason: str
) -> Tenant:
    """Nothing of the tenant begins until it is resumed; what is under way ends. Everything can be read
    and changed. What falls due meanwhile follows each job's misfire policy then."""
    return _set_paused(
        tenant_id=tenant_id, paused=True, expected_version=expected_version, actor=actor, reason=reason
    )


def resume_work(
    *, tenant_id: uuid.UUID, expected_version: int | None = None, actor: Actor, reason: str
) -> Tenant:
    """Work begins again."""
    return _set_paused(
        tenant_id=tenant_id, paused=False, expected_version=expected_version, actor=actor, reason=reason
    )


@transaction.atomic
def delay_low(*, tenant_id: uuid.UUID, delayed: bool, actor: Actor, reason: str) -> Tenant:
    """LOW work of the tenant waits, or goes on; all other work is as it was."""
    tenant = lock_tenant(tenant_id)
    before = tenant.low_delayed_at
    if (before is not None) == delayed:
        return tenant
    tenant.low_delayed_at = timezone.now() if delayed else None
    tenant_changed(tenant)
    record(
        action="tenant.delay_low" if delayed else "tenant.let_low_go", subject=tenant.public_id,
        tenant_id=tenant.id, actor=actor, reason=reason,
        before={"low_delayed_at": before and before.isoformat()},
        after={"low_delayed_at": tenant.low_delayed_at and tenant.low_delayed_at.isoformat()},
    )  # fmt: skip
    return tenant
