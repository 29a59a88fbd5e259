"""GET, PATCH /v1/tenant"""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from cells.contract import Scope
from controlplane.api.base import ApiView, tenant_or_404, with_etag
from controlplane.api.documents import LiveTenantDocument, TenantDocument, show_live_tenant, show_tenant
from controlplane.api.forms import EditTenant
from controlplane.api.permissions import needs
from controlplane.tenants.actions.tenants import update_tenant


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
