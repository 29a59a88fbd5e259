"""Everything of the workspace in files: asked for, followed, fetched by its owners."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.api.views.tenant_exports import download
from controlplane.console.acting import done, not_done
from controlplane.console.visit import Visit, tenant_page
from controlplane.custody import exporting
from controlplane.custody.contents import KINDS
from controlplane.custody.models import EXPORT, OPEN, ExportState, TenantExport
from controlplane.errors import NotFound, Refused
from controlplane.identity import decode

_NEWEST = 20


def _owners_only(visit: Visit) -> None:
    if not visit.actor.owner or visit.guest is not None:
        raise PermissionDenied


@tenant_page(Scope.ADMIN, "GET", "POST")
def exports(visit: Visit) -> HttpResponse:
    """GET …/settings/export shows exports; POST asks for one."""
    _owners_only(visit)
    if visit.request.method == "POST":
        try:
            exporting.request_export(tenant_id=visit.tenant.id, actor=visit.actor, reason="")
        except Refused as refused:
            not_done(visit, refused)
        else:
            done(visit, "The export has begun. This page shows how far it is.")
        return redirect(visit.url("tenant-exports"))
    found = list(TenantExport.objects.filter(tenant_id=visit.tenant.id).order_by("-id")[:_NEWEST])
    return visit.page(
        "console/settings/export.html", section="settings", tab="export", kinds=[n for n, _ in KINDS],
        exports=[{"it": one, "rows": sum(one.counts.values()), "done": one.state == ExportState.DONE}
                 for one in found],
        under_way=any(one.state in OPEN for one in found),
    )  # fmt: skip


@tenant_page(Scope.ADMIN)
def file(visit: Visit, export_id: str, name: str) -> HttpResponseBase:
    """GET …/settings/export/<id>/<file>"""
    _owners_only(visit)
    try:
        return download(exporting.find_export(decode(EXPORT, export_id), tenant_id=visit.tenant.id), name)
    except NotFound:
        raise Http404 from None
    except Refused as refused:
        not_done(visit, refused)
        return redirect(visit.url("tenant-exports"))
