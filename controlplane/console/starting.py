"""Getting started: the first steps, with the reader's own address and, made right there, their own key."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.acting import done, first_use, not_done
from controlplane.console.api_keys import USUAL_SCOPES, issue
from controlplane.console.cells_client import CellAway
from controlplane.console.visit import Visit, tenant_page
from controlplane.errors import Refused
from controlplane.tenants.models import ApiKey

_KEY_LIFE = timedelta(days=90)


@tenant_page(Scope.JOBS_READ, "GET", "POST")
def getting_started(visit: Visit) -> HttpResponse:
    """GET …/start; POST makes a key and shows the page with it."""
    text = ""
    if visit.request.method == "POST" and visit.may_administer:
        if not first_use(visit.request, visit.request.POST.get("token", "")[:64]):
            done(visit, "The key was made already, and is shown once.", link=(visit.url("keys"), "Your keys"))
            return redirect(visit.url("start"))
        try:
            text = issue(
                visit.tenant, name=f"Getting started, {visit.membership.user.email}"[:120],
                scopes=USUAL_SCOPES, expires_at=visit.now + _KEY_LIFE, actor=visit.actor,
            ).text  # fmt: skip
        except Refused as refused:
            not_done(visit, refused)
            return redirect(visit.url("start"))
    return visit.page(
        "console/start.html",
        section="start",
        api_url=settings.PUBLIC_API_URL,
        key=text,
        token=str(uuid.uuid4()),
        scopes=USUAL_SCOPES,
        **progress(visit),
    )


def progress(visit: Visit) -> dict[str, Any]:
    """Which steps are behind the reader."""
    found: dict[str, Any] = {
        "has_key": ApiKey.objects.filter(tenant=visit.tenant, revoked_at=None).exists(),
        "away": "",
    }
    try:
        approved = visit.cell.get("/v1/targets", state="APPROVED", limit=1)["items"]
        pending = visit.cell.get("/v1/targets", state="PENDING", limit=1)["items"]
        jobs = visit.cell.get("/v1/jobs", limit=1)["items"]
        runs = visit.cell.get("/v1/runs", limit=1)["items"]
    except CellAway as away:
        return found | {"away": str(away), "target": None, "pending": None, "job": None, "run": None}
    return found | {
        "target": approved[0] if approved else None,
        "pending": pending[0] if pending else None,
        "job": jobs[0] if jobs else None,
        "run": runs[0] if runs else None,
    }
