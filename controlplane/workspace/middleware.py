"""Activates a tenant's schema for the console's URLs of that tenant, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase

from controlplane.operators.support import guest_of
from controlplane.tenants.models import Membership

Handler = Callable[[HttpRequest], HttpResponseBase]
PREFIX = "/t/"


class WorkspaceMiddleware:
    """Below `/t/<slug>/`: the signed-in person must be a member, else 404.

    Or an operator on a visit. Sets `request.membership` (with `role`, `scopes`, `tenant`) and
    `request.tenant`. The schema is put back before the connection serves anything else,
    whatever the view did.
    """

    def __init__(self, get_response: Handler):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(PREFIX):
            return self.get_response(request)
        return self._in_workspace(request)

    def _in_workspace(self, request: HttpRequest) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path())
        slug = request.path_info[len(PREFIX) :].partition("/")[0]
        membership = (
            Membership.objects.select_related("tenant__quota", "tenant__placement__cell", "user")
            .filter(tenant__slug=slug, user=request.user.pk)
            .first()
        )
        # An operator who signed in as this tenant is a guest with scopes of their own.
        guest = guest_of(request.user, slug) if membership is None else None
        membership = membership or guest
        if membership is None:
            # The same answer for tenants that do not exist and those of others.
            return self._not_found(request)
        request.membership = membership  # type: ignore[attr-defined]
        request.tenant = membership.tenant  # type: ignore[attr-defined]
        connection.set_tenant(membership.tenant)
        try:
            response = self.get_response(request)
            render: Any = getattr(response, "render", None)
            if render is not None and not getattr(response, "is_rendered", True):
                response = render()
            return response
        finally:
            connection.set_schema_to_public()

    @staticmethod
    def _not_found(request: HttpRequest) -> HttpResponse:
        from django.views.defaults import page_not_found

        return page_not_found(request, Http404())
