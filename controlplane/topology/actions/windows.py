"""Lengthening the LOW windows of coming minutes, for a stampede bigger than planned."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from controlplane.actors import Actor
from controlplane.errors import Fault, Invalid, NotFound, Unavailable, invalid
from controlplane.events.models import AuditEvent
from controlplane.events.recording import record
from controlplane.tenants.models import Tenant
from controlplane.topology.cell_client import CellUnreachable, call_cell
from controlplane.topology.models import Cell

MAX_EXTRA_SECONDS = 6 * 3600
_MAX_AHEAD = timedelta(hours=24)
#: A cell moves up to 200,000 timers in one request, and says where to go on.
_TIMEOUT_SECONDS = 30.0
_MAX_REQUESTS = 100
_ACTION = "cell.lengthen_windows"


def lengthen_windows(
    *,
    cell: str,
    since: datetime,
    until: datetime,
    extra_seconds: int,
    tenant: str | None = None,
    actor: Actor,
    reason: str,
) -> dict[str, Any]:
    """Has a cell spread its LOW timers due in [since, until) over that much longer: later, never earlier.

    `tenant`: only this one's (a slug), who must live there. The cell tells affected tenants by an
    event. Answers the `jobs` moved, each once. What was asked and how many moved is in the audit log
    also when the cell did not answer to the end, for then more may have been done. Asked for the same
    right after that, it is the same operation, and moves nothing a second time.
    """
    _check(since, until, extra_seconds, reason)
    found = Cell.objects.filter(pk=cell).first()
    if found is None:
        raise NotFound(f"there is no cell {cell}")
    only = None
    if tenant:
        only = Tenant.objects.filter(slug=tenant, placement__cell_id=cell).first()
        if only is None:
            raise invalid("/tenant", f"no tenant {tenant} lives on {cell}")
    asked = {"from": _text(since), "until": _text(until), "extra_seconds": extra_seconds}
    operation = _unfinished(cell, asked, only) or str(uuid.uuid4())
    body = {**asked, "actor": actor.name, "operation_id": operation} | (
        {"tenant_id": only.public_id} if only else {}
    )
    failed: CellUnreachable | None = None
    done: dict[str, Any] = {}
    try:
        for _ in range(_MAX_REQUESTS):
            answer = call_cell(found, "POST", "/internal/windows:lengthen", body, timeout=_TIMEOUT_SECONDS)
            done = {"jobs": done.get("jobs", 0) + int(answer["jobs"])}
            if answer["cursor"] is None:
                break
            body["cursor"] = str(answer["cursor"])
        else:
            failed = CellUnreachable(f"{cell}: comes to no end after {_MAX_REQUESTS} requests")
    except CellUnreachable as error:
        failed = error
    except (KeyError, TypeError, ValueError):
        failed = CellUnreachable(f"{cell}: unexpected answer to POST /internal/windows:lengthen")
    with transaction.atomic():
        record(
            action=_ACTION,
            subject=cell,
            tenant_id=only.id if only else None,
            actor=actor,
            reason=reason,
            after={
                **asked,
                "operation_id": operation,
                **done,
                **({"error": str(failed)[:300]} if failed else {}),
            },
        )
    if failed is not None:
        raise Unavailable(f"the cell did not confirm it: {failed}") from failed
    return done


def _unfinished(cell: str, asked: dict[str, Any], only: Tenant | None) -> str | None:
    """The id under which the same was asked for the last time, if the cell did not confirm that."""
    last = AuditEvent.objects.filter(action=_ACTION, subject=cell).order_by("-id").first()
    after = dict(last.after or {}) if last is not None else {}
    same = last is not None and last.tenant_id == (only.id if only else None)
    if not same or "error" not in after or any(after.get(name) != value for name, value in asked.items()):
        return None
    operation: str | None = after.get("operation_id")
    return operation


def _check(since: datetime, until: datetime, extra_seconds: int, reason: str) -> None:
    now = timezone.now()
    faults = []
    if until <= max(since, now):
        faults.append(Fault(pointer="/until", detail="must lie after from, and ahead"))
    if until > now + _MAX_AHEAD:
        faults.append(Fault(pointer="/until", detail="lies more than 24 hours ahead"))
    if not 1 <= extra_seconds <= MAX_EXTRA_SECONDS:
        faults.append(Fault(pointer="/extra_seconds", detail=f"from 1 to {MAX_EXTRA_SECONDS}"))
    if not reason.strip():
        faults.append(Fault(pointer="/reason", detail="is needed"))
    if faults:
        raise Invalid(faults)


def _text(at: datetime) -> str:
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
