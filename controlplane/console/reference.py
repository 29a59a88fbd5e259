"""The API reference: our OpenAPI document, drawn by Redoc from files of our own host."""

from __future__ import annotations

from django.http import HttpResponse
from django.urls import NoReverseMatch, reverse

from cells.contract import Scope
from controlplane.console.middleware import POLICY
from controlplane.console.visit import Visit, tenant_page

# Redoc writes its styles into the page and searches in a worker; its scripts are files like all others.
_POLICY = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'") + "; worker-src blob:"


def document_url() -> str:
    """The address of the whole API's document, or of the management API's alone."""
    try:
        return reverse("openapi")
    except NoReverseMatch:
        return reverse("openapi-management")


@tenant_page(Scope.JOBS_READ)
def reference(visit: Visit) -> HttpResponse:
    """GET …/reference"""
    page = visit.page("console/reference.html", section="reference", document=document_url())
    page.headers["Content-Security-Policy"] = _POLICY
    return page
