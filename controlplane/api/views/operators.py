"""/v1/admin/tenants, and what operators do to them."""

from __future__ import annotations

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from cells.contract import Scope
from controlplane.api.base import ApiView, tenant_or_404, with_etag
from controlplane.api.documents import TenantDocument, page_of, show_tenant
from controlplane.api.forms import Because, EditTenant, NewTenant, SetQuotas
from controlplane.api.idempotency import once
from controlplane.api.pagination import keyset_page
from controlplane.api.permissions import needs
from controlplane.errors import NotFound, invalid
from controlplane.tenants.actions.members import add_member
from controlplane.tenants.actions.tenants import (
    create_tenant,
    resume_tenant,
    set_quotas,
    suspend_tenant,
    update_tenant,
)
from controlplane.tenants.models import Tenant, tenant_uuid
from controlplane.tenants.roles import Role
from controlplane.topology.models import Cell, Region


def tenant_id_of(text: str) -> uuid.UUID:
    """The uuid a path names."""
    found = tenant_uuid(text)
    if found is None:
        raise NotFound("no such tenant")
    return found


def _home_region(form: dict[str, Any]) -> str:
    """The region asked for, or the only one that can be meant."""
    if "home_region" in form:
        return str(form.pop("home_region"))
    if "cell" in form:
        region = Cell.objects.filter(pk=form["cell"]).values_list("region_id", flat=True).first()
        if region is None:
            raise invalid("/cell", "no such cell")
        return region
    names = list(Region.objects.values_list("name", flat=True)[:2])
    if len(names) != 1:
        raise invalid("/home_region", "needed: there is not exactly one region")
    return names[0]


class OperatorView(ApiView):
    """Operators act on any tenant; the path names it."""

    needs_tenant = False

    def answer(self, tenant_id: uuid.UUID) -> Response:
        tenant = tenant_or_404(tenant_id)
        return with_etag(show_tenant(tenant), tenant.version)


class TenantsView(OperatorView):
    scopes = needs(GET=Scope.OPERATOR, POST=Scope.OPERATOR)
    parameters = frozenset({"limit", "cursor", "state", "slug", "cell"})
    idempotent_post = True

    @extend_schema(operation_id="list_tenants", responses=page_of(TenantDocument))
    def get(self, request: Request) -> Response:
        """All tenants."""
        named = {"state": "state", "slug": "slug", "cell": "placement__cell"}
        exact = {f: request.query_params[p] for p, f in named.items() if p in request.query_params}
        tenants = Tenant.objects.select_related("quota", "placement__cell").filter(**exact)
        return keyset_page(request, tenants, ["id"], show_tenant)

    @extend_schema(operation_id="create_tenant", request=NewTenant, responses={201: TenantDocument})
    def post(self, request: Request) -> Response:
        """A new tenant, placed at once."""
        form = self.read(NewTenant)
        form["home_region"] = _home_region(form)
        owner = form.pop("owner_email", None)

        def create() -> Response:
            made = create_tenant(**form, actor=self.actor)
            if owner is not None:
                add_member(
                    tenant_id=made.id, email=owner, role=Role.OWNER, actor=self.actor, reason=form["reason"]
                )
            tenant = tenant_or_404(made.id)
            location = f"/v1/admin/tenants/{tenant.public_id}"
            return with_etag(show_tenant(tenant), tenant.version, status=201, location=location)

        return once(request, create)


class OneTenantView(OperatorView):
    scopes = needs(GET=Scope.OPERATOR, PATCH=Scope.OPERATOR)

    @extend_schema(operation_id="get_any_tenant", responses=TenantDocument)
    def get(self, request: Request, tenant: str) -> Response:
        """One tenant."""
        return self.answer(tenant_id_of(tenant))

    @extend_schema(operation_id="edit_any_tenant", request=EditTenant, responses=TenantDocument)
    def patch(self, request: Request, tenant: str) -> Response:
        """Changes name and defaults."""
        tenant_id = tenant_id_of(tenant)
        update_tenant(
            tenant_id=tenant_id,
            **self.read(EditTenant),
            expected_version=self.expected_version(),
            actor=self.actor,
        )
        return self.answer(tenant_id)


class TenantQuotasView(OperatorView):
    scopes = needs(PATCH=Scope.OPERATOR)

    @extend_schema(operation_id="set_quotas", request=SetQuotas, responses=TenantDocument)
    def patch(self, request: Request, tenant: str) -> Response:
        """Sets the quotas that are given."""
        tenant_id = tenant_id_of(tenant)
        set_quotas(
            tenant_id=tenant_id,
            **self.read(SetQuotas),
            expected_version=self.expected_version(),
            actor=self.actor,
        )
        return self.answer(tenant_id)


class _TenantVerb(OperatorView):
    scopes = needs(POST=Scope.OPERATOR)
    act: Any = None

    @extend_schema(request=Because, responses=TenantDocument)
    def post(self, request: Request, tenant: str) -> Response:
        tenant_id = tenant_id_of(tenant)
        type(self).act(
            tenant_id=tenant_id,
            expected_version=self.expected_version(),
            actor=self.actor,
            reason=self.read(Because)["reason"],
        )
        return self.answer(tenant_id)


@extend_schema_view(
    post=extend_schema(operation_id="suspend_tenant", description="Nothing of the tenant starts any more.")
)
class SuspendTenantView(_TenantVerb):
    act = staticmethod(suspend_tenant)


@extend_schema_view(post=extend_schema(operation_id="resume_tenant", description="It works again."))
class ResumeTenantView(_TenantVerb):
    act = staticmethod(resume_tenant)
