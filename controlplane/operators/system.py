"""The control plane's own health: feed, outbox, what cells have not confirmed, meters and their drift."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db.models import Count, Max, Min, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone

from billing.live import received_by_cell
from billing.models import DirtyDay, MeterConflict
from controlplane.events.models import Change, FeedHorizon, OutboxItem
from controlplane.mail import kept_mails
from controlplane.operators.pages import operator_page, page
from controlplane.operators.tenants import unconfirmed
from controlplane.tenants.models import WorkspaceSchema
from controlplane.topology.models import Cell, CellState
from controlplane.workspace.template import target_version

#: Outbox rows older than this are more than a cell that restarts.
OVERDUE = timedelta(minutes=1)
#: Cells ship each minute once it is sealed; silence beyond this is worth a look.
SILENT = timedelta(minutes=5)


@operator_page()
def system(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/system/"""
    now = timezone.now()
    outbox = OutboxItem.objects.aggregate(
        waiting=Count("id"),
        failing=Count("id", filter=Q(attempts__gt=0, last_error__gt="")),
        oldest=Min("wanted_at"),
    )
    feed = Change.objects.aggregate(
        rows=Count("id"),
        newest=Max("at"),
        last_minute=Count("id", filter=Q(at__gt=now - timedelta(minutes=1))),
    )
    received = received_by_cell()
    meters = [
        {
            "cell": cell,
            "at": received.get(cell),
            "silent": (at := received.get(cell)) is None or now - at > SILENT,
        }
        for cell in Cell.objects.exclude(state=CellState.RETIRED)
        .values_list("name", flat=True)
        .order_by("name")
    ]
    schemas = WorkspaceSchema.objects.aggregate(
        all=Count("schema"),
        pooled=Count("schema", filter=Q(state=WorkspaceSchema.State.POOLED)),
        behind=Count("schema", filter=~Q(version=target_version())),
        failed=Count("schema", filter=Q(last_error__gt="")),
    )
    behind = unconfirmed().order_by("tenant__slug")
    return page(
        request,
        "system.html",
        "System",
        outbox=outbox,
        outbox_late=outbox["oldest"] is not None and now - outbox["oldest"] > OVERDUE,
        failing=OutboxItem.objects.filter(attempts__gt=0).order_by("wanted_at")[:20],
        feed=feed,
        horizon=FeedHorizon.objects.first(),
        behind=behind[:20],
        behind_count=behind.count(),
        meters=meters,
        conflicts=MeterConflict.objects.filter(settled_at=None).count(),
        dirty=DirtyDay.objects.count(),
        schemas=schemas,
    )


@operator_page()
def mails(request: HttpRequest) -> HttpResponse:
    """GET /admin/pages/mail/: the folder's mails, where development mail goes to one."""
    if not settings.MAIL_FOLDER:
        raise Http404
    found = [mail for _, mail in zip(range(50), kept_mails(), strict=False)]
    return page(request, "mails.html", "Mails", mails=found, folder=settings.MAIL_FOLDER)
