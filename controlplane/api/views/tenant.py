"""GET, PATCH /v1/tenant; /v1/tenant:pause and :resume"""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from cells.contract import Scope
from controlplane.api.base import ApiView, tenant_or_404, with_etag
from controlplane.api.documents import (
    LiveTenantDocument,
    QuotasDocument,
    TenantDocument,
    show_live_tenant,
    show_quotas,
    show_tenant,
)
from controlplane.api.forms import Because, EditTenant
from controlplane.api.permissions import needs
from controlplane.tenants.actions.tenants import pause_work, resume_work, update_tenant


class TenantView(ApiView):
    scopes = needs(GET=Scope.JOBS_READ, PATCH=Scope.ADMIN)

    @extend_schema(operation_id="get_tenant", responses=LiveTenantDocument)
    def get(self, request: Request) -> Response:
        """The tenant: quotas with their live use, placement, defaults and region policy."""
        tenant = tenant_or_404(self.tenant_id)
        return with_etag(show_live_tenant(tenant), tenant.version)

    @extend_schema(operation_id="edit_tenant", request=EditTenant, responses=TenantDocument)
    def patch(self, request: Request) -> Response:
        """Changes name and defaults. Quotas are set by operators."""
        update_tenant(
            tenant_id=self.tenant_id,
            **self.read(EditTenant),
            expected_version=self.expected_version(),
            actor=self.actor,
        )
        tenant = tenant_or_404(self.tenant_id)
        return with_etag(show_tenant(tenant), tenant.version)


class QuotasView(ApiView):
    scopes = needs(GET=Scope.JOBS_READ)

    @extend_schema(operation_id="get_quotas", responses=QuotasDocument)
    def get(self, request: Request) -> Response:
        """Each quota, what is used of it now, and what happens over it. Operators name the tenant."""
        return Response(show_quotas(tenant_or_404(self.tenant_id)))


class _TenantVerb(ApiView):
    scopes = needs(POST=Scope.ADMIN)
    act: Any = None

    @extend_schema(request=Because, responses=TenantDocument)
    def post(self, request: Request) -> Response:
        type(self).act(
            tenant_id=self.tenant_id,
            expected_version=self.expected_version(),
            actor=self.actor,
            reason=self.read(Because)["reason"],
        )
        tenant = tenant_or_404(self.tenant_id)
        return with_etag(show_tenant(tenant), tenant.version)


@extend_schema_view(
    post=extend_schema(
        operation_id="pause_tenant",
        description="Nothing of the tenant begins until it is resumed; runs under way end. What falls due "
        "meanwhile follows each job's misfire policy when it is resumed.",
    )
)
class PauseTenantView(_TenantVerb):
    act = staticmethod(pause_work)


@extend_schema_view(post=extend_schema(operation_id="resume_own_tenant", description="Work begins again."))
class ResumeOwnTenantView(_TenantVerb):
    act = staticmethod(resume_work)
