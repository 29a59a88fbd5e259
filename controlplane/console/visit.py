"""One member's request to a page of their tenant, and what is the same for all such pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, wraps
from typing import Any
from zoneinfo import ZoneInfo

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from cells.contract import Scope, allows
from controlplane.actors import Actor
from controlplane.console.cells_client import CellAway, CellClient, Refused
from controlplane.console.middleware import viewer_zone
from controlplane.operators.support import Guest
from controlplane.tenants.models import Membership, Tenant
from controlplane.tenants.roles import Role
from controlplane.workspace.models import WorkspaceSettings


@dataclass
class Visit:
    """Who looks at which tenant, when, and from which time zone."""

    request: HttpRequest
    membership: Membership | Guest
    now: datetime

    @property
    def tenant(self) -> Tenant:
        tenant: Tenant = self.membership.tenant
        return tenant

    @property
    def slug(self) -> str:
        return str(self.tenant.slug)

    @cached_property
    def cell(self) -> CellClient:
        """The tenant's cell, spoken to as this member. Raises `CellAway`."""
        return CellClient.for_member(self.membership)

    @cached_property
    def workspace(self) -> WorkspaceSettings:
        """The workspace's own settings; the defaults where nobody has set any."""
        return WorkspaceSettings.objects.first() or WorkspaceSettings()

    @property
    def name(self) -> str:
        """What the workspace is called."""
        return self.workspace.display_name or self.tenant.name

    @property
    def guest(self) -> Guest | None:
        """Set while an operator visits."""
        return self.membership if isinstance(self.membership, Guest) else None

    @property
    def actor(self) -> Actor:
        """Who acts here, for use-cases and their audit."""
        address = self.request.META.get("REMOTE_ADDR", "")
        return Actor(
            name=self.membership.user.actor_name,
            owner=self.membership.role == Role.OWNER,
            source=f"console {address}".strip(),
        )

    @cached_property
    def zone(self) -> ZoneInfo:
        return viewer_zone(self.request, self.workspace.timezone)

    def may(self, scope: Scope) -> bool:
        """Whether the member may do something; the cell checks it again."""
        return allows((str(held) for held in self.membership.scopes), scope)

    @property
    def may_write(self) -> bool:
        return self.may(Scope.JOBS_WRITE)

    @property
    def may_edit_targets(self) -> bool:
        """As jobs, but never on an operator's visit."""
        return self.may_write and self.guest is None

    @property
    def may_trigger(self) -> bool:
        return self.may(Scope.JOBS_TRIGGER)

    @property
    def may_approve(self) -> bool:
        return self.may(Scope.TARGETS_APPROVE)

    @property
    def may_write_workflows(self) -> bool:
        return self.may(Scope.WORKFLOWS_WRITE)

    @property
    def may_see_payloads(self) -> bool:
        return self.may(Scope.PAYLOADS_READ)

    @property
    def why_hidden(self) -> str:
        """Why payloads are not shown, in words that go on from "hidden:"."""
        if self.guest is not None:
            return "the workspace has not allowed support to see payloads"
        return "your role may not see payloads"

    @property
    def may_administer(self) -> bool:
        return self.may(Scope.ADMIN)

    @property
    def may_see_usage(self) -> bool:
        return self.may(Scope.USAGE_READ)

    def url(self, name: str, *args: str) -> str:
        """A page of this tenant."""
        return reverse(f"console:{name}", args=(self.slug, *args))

    def page(self, template: str, status: int = 200, **context: Any) -> HttpResponse:
        """A rendered page (or part of one)."""
        return render(self.request, template, {"visit": self, "now": self.now, **context}, status=status)


Page = Callable[..., HttpResponse]


def tenant_page(scope: Scope, *methods: str) -> Callable[[Page], Page]:
    """A view below `/t/<slug>/`: `view(visit, ...)`.

    The workspace middleware has fetched the membership (or answered 404); here its scopes are
    compared with what the page needs, and what a cell may answer becomes a page.
    """

    def decorate(view: Page) -> Page:
        @require_http_methods(list(methods) or ["GET"])
        @wraps(view)
        def checked(request: HttpRequest, slug: str, *args: Any, **more: Any) -> HttpResponse:
            membership: Membership | Guest | None = getattr(request, "membership", None)
            if membership is None or membership.tenant.slug != slug:
                raise Http404
            visit = Visit(request, membership, timezone.now())
            if not visit.may(scope):
                raise PermissionDenied
            try:
                return view(visit, *args, **more)
            except CellAway as away:
                return _away(visit, str(away))
            except Refused as refused:
                if refused.status == 404:
                    raise Http404 from None
                if refused.status == 403:
                    raise PermissionDenied from None
                return visit.page("console/refused.html", status=refused.status, refused=refused)

        return checked

    return decorate


def _away(visit: Visit, why: str) -> HttpResponse:
    part = getattr(visit.request, "htmx", None)
    template = "console/parts/away.html" if part else "console/away.html"
    # htmx swaps only what succeeded, and the part is an answer: it says that there is none.
    return visit.page(template, status=200 if part else 503, why=why)
