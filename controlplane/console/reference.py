"""The API reference: our OpenAPI document, drawn by Swagger UI from files of our own host."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpResponse
from django.urls import reverse

from cells.contract import Scope
from controlplane.console.visit import Visit, tenant_page


@tenant_page(Scope.JOBS_READ)
def reference(visit: Visit) -> HttpResponse:
    """GET …/reference"""
    return visit.page(
        "console/reference.html",
        section="reference",
        document=reverse("openapi"),
        api_url=settings.PUBLIC_API_URL,
    )
