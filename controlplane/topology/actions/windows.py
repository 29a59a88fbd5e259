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
#: What stands for the outcome until there is one.
_UNDER_WAY = "not confirmed yet"


def lengthen_windows(
    *,
    cell: str,
    since: datetime,
    until: datetime,
    extra_seconds: int,
    tenant: str | None = None,
    form_id: str | None = None,
    actor: Actor,
    reason: str,
) -> dict[str, Any]:
    """Has a cell spread its LOW timers due in [since, until) over that much longer: later, never earlier.

    `tenant`: only this one's (a slug), who must live there. The cell tells affected tenants by an
    event. Answers the `jobs` moved, each once. What is asked is in the audit log before the cell hears
    of it, and how many moved behind that, also when the cell did not answer to the end, for then more
    may have been done. Asked for the same before it is confirmed (at the same time, or after a failure or
    a crash), it is the same operation, and moves nothing a second time. Nor does what comes from the same
    form (`form_id`) a second time after it was done: it is answered as before, with `again`.
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
    asked: dict[str, Any] = {"from": _text(since), "until": _text(until), "extra_seconds": extra_seconds}
    with transaction.atomic():
        Cell.objects.select_for_update().get(pk=cell)  # of two who ask at once, one finds the other's
        if form_id:
            asked["form_id"] = form_id
            before = _done(cell, asked, only)
            if before is not None:
                return before | {"again": True}
        operation = _unfinished(cell, asked, only) or str(uuid.uuid4())
        _note(found, only, actor, reason, {**asked, "operation_id": operation, "error": _UNDER_WAY})
    told = {name: value for name, value in asked.items() if name != "form_id"}
    body = {**told, "actor": actor.name, "operation_id": operation} | (
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
    outcome = {"error": str(failed)[:300]} if failed else {}
    _note(found, only, actor, reason, {**asked, "operation_id": operation, **done, **outcome})
    if failed is not None:
        raise Unavailable(f"the cell did not confirm it: {failed}") from failed
    return done


def _note(cell: Cell, only: Tenant | None, actor: Actor, reason: str, after: dict[str, Any]) -> None:
    record(
        action=_ACTION, subject=cell.name, tenant_id=only.id if only else None, actor=actor, reason=reason,
        after=after,
    )  # fmt: skip


def _unfinished(cell: str, asked: dict[str, Any], only: Tenant | None) -> str | None:
    """The id under which the same was asked for the last time, if the cell did not confirm that."""
    after = _last(cell, {name: value for name, value in asked.items() if name != "form_id"}, only)
    return str(after["operation_id"]) if "error" in after and "operation_id" in after else None


def _done(cell: str, asked: dict[str, Any], only: Tenant | None) -> dict[str, Any] | None:
    """What came of it, if the same form asked for the same before and the cell confirmed it."""
    after = _last(cell, asked, only)
    return {"jobs": after["jobs"]} if "jobs" in after and "error" not in after else None


def _last(cell: str, asked: dict[str, Any], only: Tenant | None) -> dict[str, Any]:
    of = {"action": _ACTION, "subject": cell, "tenant_id": only.id if only else None}
    last = AuditEvent.objects.filter(**of, after__contains=asked).order_by("-id").first()
    return dict(last.after or {}) if last is not None else {}


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
