"""/v1/audit-log, /v1/admin/audit-log"""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from cells.contract import Scope
from controlplane.api.base import ApiView
from controlplane.api.documents import AuditDocument, page_of, show_event
from controlplane.api.pagination import keyset_page
from controlplane.api.permissions import needs
from controlplane.events.models import AuditEvent


@extend_schema_view(get=extend_schema(operation_id="list_audit_events"))
class AuditLogView(ApiView):
    scopes = needs(GET=Scope.ADMIN)
    parameters = frozenset({"limit", "cursor", "action", "actor", "subject"})

    def events(self) -> QuerySet[AuditEvent]:
        return AuditEvent.objects.filter(tenant_id=self.tenant_id)

    @extend_schema(responses=page_of(AuditDocument))
    def get(self, request: Request) -> Response:
        """Every change, newest first."""
        exact: dict[str, Any] = {
            name: request.query_params[name]
            for name in ("action", "actor", "subject")
            if name in request.query_params
        }
        return keyset_page(request, self.events().filter(**exact), ["id"], show_event, newest_first=True)


@extend_schema_view(get=extend_schema(operation_id="list_all_audit_events"))
class OperatorAuditLogView(AuditLogView):
    """All tenants' and the installation's own."""

    scopes = needs(GET=Scope.OPERATOR)
    needs_tenant = False

    def events(self) -> QuerySet[AuditEvent]:
        return AuditEvent.objects.all()
