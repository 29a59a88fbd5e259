"""The one way into the management API: a request the router has signed."""

from __future__ import annotations

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from cells.contract import SIGNATURE_HEADER, BadSignature, Caller
from controlplane.api.principal import Principal
from controlplane.signatures import ROUTER_KID, verify
from controlplane.tenants.models import tenant_uuid


class RouterAuthentication(BaseAuthentication):
    """Sessions and cookies count for nothing here, so there is no CSRF to guard against."""

    def authenticate(self, request: Request) -> tuple[Principal, Caller] | None:
        if SIGNATURE_HEADER not in request.headers:
            return None
        try:
            caller = verify(request._request, {ROUTER_KID: settings.CONFIGURATION.router_key})
        except BadSignature as e:
            raise AuthenticationFailed(str(e)) from e
        tenant_id = tenant_uuid(caller.tenant_id) if caller.tenant_id else None
        if caller.tenant_id and tenant_id is None:
            raise AuthenticationFailed("the tenant's id is malformed")
        forwarded = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
        principal = Principal(
            name=caller.actor,
            tenant_id=tenant_id,
            scopes=frozenset(caller.scopes),
            source=f"api {forwarded}".strip()[:200],
        )
        return principal, caller

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="clockhouse"'


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How it looks from outside: the router turns a key into a signature."""

    target_class = "controlplane.api.authentication.RouterAuthentication"
    name = "ApiKey"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer ch_live_…`"}
