"""/healthz, /readyz and /metrics."""

from __future__ import annotations

from datetime import datetime

import psycopg
from django.db import DatabaseError, connection
from django.db.models import Count, F, Min, Q
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from controlplane.evacuations.machine import ENDED_WHOLE, Whole
from controlplane.evacuations.models import Evacuation
from controlplane.events.models import OutboxItem
from controlplane.notifications import sending
from controlplane.ownership.installed import installed_store
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.rehearsals.models import ENDED, Rehearsal
from controlplane.topology.models import Placement

__all__ = ["healthz", "metrics", "readyz"]


def healthz(request: HttpRequest) -> HttpResponse:
    """The process answers."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> HttpResponse:
    """The database is reachable and migrated. The ownership store is named but not needed:
    without it everything but placing works."""
    checks: dict[str, str] = {}
    try:
        OutboxItem.objects.exists()
        checks["database"] = "ok"
    except (DatabaseError, psycopg.Error) as e:
        connection.close()
        checks["database"] = type(e).__name__
    try:
        installed_store().cell("-")
        checks["ownership"] = "ok"
    except (OwnershipUnavailable, psycopg.Error) as e:
        checks["ownership"] = type(e).__name__
    return JsonResponse(checks, status=200 if checks["database"] == "ok" else 503)


def _age(since: datetime | None) -> float:
    return 0.0 if since is None else max(0.0, (timezone.now() - since).total_seconds())


def metrics(request: HttpRequest) -> HttpResponse:
    """What is recorded, read when asked: the same whichever process answers."""
    from billing.models import DirtyDay, DriftFinding, Export, MeterConflict

    registry = CollectorRegistry()

    def gauge(name: str, text: str, value: float) -> None:
        Gauge(name, text, registry=registry).set(value)

    outbox = OutboxItem.objects.aggregate(
        n=Count("id"), oldest=Min("wanted_at"), failing=Count("id", filter=Q(attempts__gt=1))
    )
    gauge("control_outbox_items", "Outside effects still to be done.", outbox["n"])
    gauge("control_outbox_failing_items", "Of these, tried more than once.", outbox["failing"])
    gauge("control_outbox_oldest_seconds", "Age of the oldest.", _age(outbox["oldest"]))
    behind = Placement.objects.filter(confirmed_version__lt=F("tenant__version"))
    gauge(
        "control_unconfirmed_tenants", "Tenants whose cell has not confirmed their version.", behind.count()
    )
    gauge("billing_dirty_days", "Days still to be added up.", DirtyDay.objects.count())
    open_conflicts = MeterConflict.objects.filter(settled_at=None, first_at__lte=Now())
    gauge("billing_open_meter_conflicts", "Meter records refused and not settled.", open_conflicts.count())
    drift = DriftFinding.objects.filter(settled_at=None).count()
    gauge("billing_open_drift_findings", "Days of tenants where ledger and cell differ, not settled.", drift)
    waiting = Export.objects.filter(state__in=["REQUESTED", "RUNNING"])
    oldest = waiting.aggregate(oldest=Min("created_at"))["oldest"]
    gauge("billing_exports_waiting", "Exports that are asked for and not written.", waiting.count())
    gauge("billing_exports_oldest_seconds", "Age of the oldest of them.", _age(oldest))
    told = sending.waiting()
    gauge("control_notifications_waiting", "Messages that are still to be delivered.", told["waiting"])
    gauge("control_notifications_failing", "Of these, tried more than once.", told["failing"])
    gauge("control_notifications_oldest_seconds", "Age of the oldest of them.", told["oldest_seconds"])
    evacuations = Evacuation.objects.exclude(state__in=[s.value for s in ENDED_WHOLE])
    gauge("control_evacuations_open", "Evacuations and failbacks under way.", evacuations.count())
    paused = evacuations.filter(state=Whole.PAUSED.value).count()
    gauge("control_evacuations_paused", "Of these, paused: somebody is waited for.", paused)
    cuts = Rehearsal.objects.exclude(state__in=[s.value for s in ENDED]).count()
    gauge("control_rehearsals_open", "Rehearsals of a lost region under way.", cuts)
    failed = Export.objects.filter(state="FAILED", cleaned_at=None).count()
    gauge("billing_exports_failed", "Exports given up within the last hour or so.", failed)
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
