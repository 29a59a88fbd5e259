"""Tenants are erased: asked for, thought over for a while, and then done step by step until nothing is left.

The row says which step is next. Each step may be done again from its beginning; a crash costs no more.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Q
from django.utils import timezone

from billing.exports.models import Export
from billing.exports.places import Retryable
from billing.invoices.models import Invoice
from controlplane.actors import Actor
from controlplane.custody import forgetting
from controlplane.custody.mails import TOPIC
from controlplane.custody.models import Erasure, ErasureState, TenantExport
from controlplane.errors import Conflicting, Forbidden, NotFound, invalid
from controlplane.events.recording import record, want
from controlplane.locks import lock_tenant
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.sql import named_sql
from controlplane.tenants.actions.api_keys import made_for_owners
from controlplane.tenants.models import ApiKey, Tenant
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.models import Cell, CellState

_SQL = named_sql(Path(__file__).parent / "sql" / "erasures.sql")
_LOG = structlog.get_logger(__name__)
#: When a step that waits is looked at again.
_AGAIN = timedelta(seconds=5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Requested:
    """An erasure that was asked for, and the secret that fetches its certificate: shown this once."""

    erasure: Erasure
    link: str


#: The steps in their order; each answers what it waits for, or nothing: it is done.
STEPS: tuple[tuple[str, Callable[[Erasure], str]], ...] = (
    ("pause", forgetting.pause),
    ("keys", forgetting.keys),
    ("moves", forgetting.moves),
    ("cells", forgetting.cells),
    ("exports", forgetting.exports),
    ("workspace", forgetting.workspace),
    ("control plane", forgetting.rows),
    ("look", forgetting.look),
    ("certificate", forgetting.certificate),
)


def plan(tenant_id: uuid.UUID) -> dict[str, Any]:
    """What would be erased, in numbers; null where a cell cannot be asked just now. Changes nothing."""
    tenant = Tenant.objects.select_related("placement__cell").filter(pk=tenant_id).first()
    if tenant is None:
        raise NotFound("no such tenant")
    use: dict[str, Any] = {}
    placement = getattr(tenant, "placement", None)
    if placement is not None:
        try:
            use = call_cell(placement.cell, "GET", f"/internal/tenants/{tenant.public_id}/use")
        except CellUnreachable as away:
            _LOG.warning("a plan lacks the cell's numbers", cell=placement.cell_id, error=str(away))
    return {
        "slug": tenant.slug,
        "members": tenant.memberships.count(),
        "api_keys": tenant.api_keys.count(),
        "notification_rules": tenant.notification_rules.count(),
        "exports": TenantExport.objects.filter(tenant_id=tenant_id).count()
        + Export.objects.filter(Q(tenant_id=tenant_id) | Q(about_tenant_id=tenant_id)).count(),
        "cells": Cell.objects.exclude(state=CellState.RETIRED).count(),
        "pending_timers": use.get("pending_timers"),
        "running_runs": use.get("running_runs"),
        "kept_invoices": Invoice.objects.filter(tenant_id=tenant_id).count(),
        "grace_seconds": int(settings.CUSTODY["grace_seconds"]),
    }


def request_erasure(
    *, tenant_id: uuid.UUID, confirm: str, actor: Actor, reason: str, key: bool = False
) -> Requested:
    """Asks for a tenant to be erased once the time of grace is over; until then everything goes on, and it
    can be cancelled. Owners and operators may; with `key`, a key of the whole tenant that one of these made.
    Every owner hears of it. `confirm` is the tenant's slug, typed."""
    if not (actor.owner or actor.operator or (key and made_for_owners(tenant_id, actor))):
        raise Forbidden("only owners and operators erase a workspace, and keys that they made")
    numbers = plan(tenant_id)
    if confirm != numbers["slug"]:
        raise invalid("/confirm", f"is to be the workspace's short name, {numbers['slug']}")
    return _requested(tenant_id, numbers, actor, reason)


@transaction.atomic
def _requested(tenant_id: uuid.UUID, numbers: dict[str, Any], actor: Actor, reason: str) -> Requested:
    lock_tenant(tenant_id)
    secret = secrets.token_urlsafe(24)
    try:
        with transaction.atomic():
            made = Erasure.objects.create(
                tenant_id=tenant_id, plan=numbers, requested_by=actor.name,
                due_at=timezone.now() + timedelta(seconds=int(settings.CUSTODY["grace_seconds"])),
                link_sha256=_hashed(secret),
            )  # fmt: skip
    except IntegrityError as e:
        raise Conflicting("the workspace is to be erased already") from e
    made.refresh_from_db()
    record(
        action="tenant.erasure_request", subject=made.public_id, tenant_id=tenant_id, actor=actor,
        reason=reason, after={"due_at": made.due_at.isoformat()},
    )  # fmt: skip
    want(topic=TOPIC, subject=str(made.id))
    return Requested(
        erasure=made,
        link=f"{settings.CONFIGURATION.console_url.rstrip('/')}/erasures/{made.public_id}/{secret}",
    )


@transaction.atomic
def cancel_erasure(*, erasure_id: uuid.UUID, actor: Actor, reason: str, key: bool = False) -> Erasure:
    """It is not erased. Until the time of grace is over only. What a key asked for a key may cancel that
    may ask for it; what an owner or an operator asked for, only they."""
    erasure = Erasure.objects.select_for_update().filter(pk=erasure_id).first()
    if erasure is None:
        raise NotFound("no such erasure")
    if not (actor.owner or actor.operator):
        if not (key and made_for_owners(erasure.tenant_id, actor)):
            raise Forbidden("only owners and operators cancel an erasure, and keys that they made")
        if not _asked_by_key(erasure):
            raise Forbidden("an owner or an operator asked for it: only they cancel it")
    if erasure.state == ErasureState.CANCELLED:
        return erasure
    if erasure.state != ErasureState.REQUESTED:
        raise Conflicting("the erasure has begun: there is no way back")
    erasure.state, erasure.finished_at = ErasureState.CANCELLED, timezone.now()
    erasure.save(update_fields=["state", "finished_at"])
    record(
        action="tenant.erasure_cancel", subject=erasure.public_id, tenant_id=erasure.tenant_id, actor=actor,
        reason=reason, before={"state": "REQUESTED"}, after={"state": "CANCELLED"},
    )  # fmt: skip
    want(topic=TOPIC, subject=str(erasure.id))
    return erasure


def _asked_by_key(erasure: Erasure) -> bool:
    """Whether one of the tenant's own keys asked for it."""
    kind, _, key_id = erasure.requested_by.partition(":")
    return kind == "key" and ApiKey.objects.filter(pk=key_id, tenant=erasure.tenant_id).exists()


def open_erasure(tenant_id: uuid.UUID) -> Erasure | None:
    """The erasure of a tenant that is asked for, goes on, or is done."""
    return Erasure.objects.filter(tenant_id=tenant_id).exclude(state=ErasureState.CANCELLED).first()


def find_erasure(erasure_id: uuid.UUID | None) -> Erasure:
    """An erasure, for operators."""
    found = None if erasure_id is None else Erasure.objects.filter(pk=erasure_id).first()
    if found is None:
        raise NotFound("no such erasure")
    return found


def by_link(erasure_id: uuid.UUID | None, secret: str) -> Erasure:
    """The erasure that a link names; without its secret there is none."""
    found = find_erasure(erasure_id)
    if not secrets.compare_digest(bytes(found.link_sha256), _hashed(secret)):
        raise NotFound("no such erasure")
    return found


def fetch_by_link(erasure_id: uuid.UUID | None, secret: str) -> dict[str, Any]:
    """The certificate, once: then the link is over."""
    found = by_link(erasure_id, secret)
    if found.state != ErasureState.DONE:
        raise Conflicting("the certificate is there once everything is erased")
    if not Erasure.objects.filter(pk=found.pk, fetched_at=None).update(fetched_at=timezone.now()):
        raise Conflicting("the certificate was fetched by this link already; operators have it")
    return dict(found.certificate)


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def due(limit: int = 20) -> list[uuid.UUID]:
    """Erasures that can go on now."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["due"], {"limit": limit})
        return [row[0] for row in cursor.fetchall()]


def run(erasure_id: uuid.UUID) -> bool:
    """Goes on with an erasure as far as it comes now; whether it is done. One process at a time does this."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["begin"], {"id": erasure_id})
    erasure = Erasure.objects.get(pk=erasure_id)
    if erasure.state != ErasureState.RUNNING:
        return False
    while erasure.step < len(STEPS):
        name, do = STEPS[erasure.step]
        try:
            waits = do(erasure)
        except (CellUnreachable, Retryable, OwnershipUnavailable) as away:
            waits = str(away)
        except Exception as fault:  # noqa: BLE001 - whatever it is, people read it and it is tried again
            _LOG.exception("a step of an erasure failed", erasure=str(erasure), step=name)
            waits = f"{type(fault).__name__}: {fault}"
        if waits:
            erasure.why, erasure.due_at = f"{name}: {waits}"[:1000], timezone.now() + _AGAIN
            erasure.save(update_fields=["why", "due_at", "done"])
            return False
        erasure.step, erasure.why = erasure.step + 1, ""
        erasure.save(update_fields=["step", "why", "done"])
    return True


def compare_cells() -> int:
    """Has cells erase again whom they do not know as erased: cells that are new, or were restored from a
    backup; how many were asked for."""
    gone = dict(Erasure.objects.filter(state=ErasureState.DONE).values_list("tenant_id", "id"))
    asked = 0
    for cell in Cell.objects.exclude(state=CellState.RETIRED) if gone else ():
        try:
            asked += forgetting.again(cell, gone)
        except CellUnreachable as away:
            _LOG.warning("whom it has erased is not known", cell=cell.name, error=str(away))
    return asked
