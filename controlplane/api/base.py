"""What every view of the API shares."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from cells.contract import ErrorCode, Scope
from controlplane.actors import Actor
from controlplane.api.principal import principal_of
from controlplane.api.problems import Problem, invalid
from controlplane.errors import NotFound
from controlplane.operators.reads import record_read
from controlplane.tenants.models import Tenant, tenant_uuid


class Strict(serializers.Serializer[Any]):
    """A request body: unknown fields are faults, listed with the others."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(set(data) - set(self.fields)) if isinstance(data, Mapping) else []
        faults: dict[str, Any] = {name: ["Unknown field."] for name in unknown}
        try:
            value = super().to_internal_value(data)
        except serializers.ValidationError as e:
            detail = e.detail
            raise serializers.ValidationError(
                {**detail, **faults} if isinstance(detail, dict) else detail
            ) from e
        if faults:
            raise serializers.ValidationError(faults)
        return value


class Text(serializers.CharField):
    """A JSON string; no number that could be read as one."""

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        if self.max_length is not None and len(data) > self.max_length:
            self.fail("max_length", max_length=self.max_length)  # before spaces are taken off its ends
        return str(super().to_internal_value(data))


class ReasonMixin(Strict):
    """Changes may say why; it goes into the audit log."""

    reason = Text(required=False, default="", allow_blank=True, max_length=500)


class ApiView(APIView):
    """`scopes`: which scope each method needs. `parameters`: what the query may hold."""

    scopes: ClassVar[Mapping[str, Scope]] = {}
    #: Whether the request must be about a tenant (an operator's key then names one).
    needs_tenant: ClassVar[bool] = True
    parameters: ClassVar[frozenset[str]] = frozenset()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if self.needs_tenant and principal_of(request).tenant_id is None:
            raise Problem(400, ErrorCode.MALFORMED, "Name the tenant in X-Tenant-Id.")
        self._record_read(request, kwargs.get("tenant"))
        # PostgreSQL keeps no NUL: nothing is called so, and nothing can be looked for.
        if any("\0" in str(value) for value in kwargs.values()):
            raise NotFound("nothing by that name")
        faults = [
            {"parameter": name, "detail": "Unknown parameter."}
            for name in request.query_params
            if name not in self.parameters
        ]
        faults += [
            {"parameter": name, "detail": "Must hold no NUL."}
            for name, value in request.query_params.items()
            if "\0" in value and name in self.parameters
        ]
        if faults:
            raise invalid(faults)

    def _record_read(self, request: Request, named: str | None) -> None:
        """Whom path, query or header name; `reads_of` tells of those that only what is found names."""
        text = request.query_params.get("tenant_id") if named is None else named
        tenant_id = principal_of(request).tenant_id if text is None else tenant_uuid(text)
        if tenant_id is not None:
            self.reads_of(tenant_id)

    def reads_of(self, tenant_id: uuid.UUID) -> None:
        """An operator who reads of a tenant is in its audit log; changes are there by themselves."""
        principal = principal_of(self.request)
        if not principal.operator or self.request.method not in SAFE_METHODS:
            return
        record_read(tenant_id=tenant_id, actor=principal.as_actor(), what=self.request.path)

    @property
    def tenant_id(self) -> uuid.UUID:
        """The tenant the request is about."""
        tenant_id = principal_of(self.request).tenant_id
        if tenant_id is None:  # `initial` has seen to it where `needs_tenant`
            raise NotFound("no such tenant")
        return tenant_id

    @property
    def actor(self) -> Actor:
        return principal_of(self.request).as_actor()

    def read(self, form: type[Strict]) -> dict[str, Any]:
        """The body, checked; all its faults at once otherwise."""
        serializer = form(data=self.request.data)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)

    def expected_version(self) -> int | None:
        """What If-Match says; None if anything will do."""
        text = self.request.headers.get("If-Match", "").strip()
        if text in ("", "*"):
            return None
        inner = text[1:-1] if len(text) > 2 and text[0] == text[-1] == '"' else ""
        if not (inner.isascii() and inner.isdigit() and len(inner) < 19):
            # No entity of ours has such a tag, so none matches.
            return -1
        return int(inner)


def with_etag(document: Any, version: int, *, status: int = 200, location: str | None = None) -> Response:
    """A document with the version it stands for."""
    headers = {"ETag": f'"{version}"'}
    if location is not None:
        headers["Location"] = location
    return Response(document, status, headers=headers)


def tenant_or_404(tenant_id: uuid.UUID) -> Tenant:
    tenant = Tenant.objects.select_related("quota", "placement__cell").filter(pk=tenant_id).first()
    if tenant is None:
        raise NotFound("no such tenant")
    return tenant
