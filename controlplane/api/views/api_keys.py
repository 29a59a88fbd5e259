"""/v1/api-keys, and /v1/admin/api-keys for operators' own keys."""

from __future__ import annotations

import uuid
from datetime import timedelta

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response

from cells.contract import Scope
from controlplane.api.base import ApiView
from controlplane.api.documents import ApiKeyDocument, IssuedKeyDocument, page_of, show_key
from controlplane.api.forms import Because, NewApiKey, RotateApiKey
from controlplane.api.idempotency import once
from controlplane.api.pagination import keyset_page
from controlplane.api.permissions import needs
from controlplane.errors import NotFound
from controlplane.tenants.actions.api_keys import (
    IssuedKey,
    create_api_key,
    revoke_api_key,
    rotate_api_key,
)
from controlplane.tenants.models import ApiKey


def _issued(issued: IssuedKey, base: str) -> Response:
    document = {**show_key(issued.key), "api_key": issued.text}
    # The one time the text is shown; it must stay in no cache.
    headers = {"Location": f"{base}/{issued.key.id}", "Cache-Control": "no-store"}
    return Response(document, 201, headers=headers)


class _Keys(ApiView):
    base = "/v1/api-keys"

    @property
    def owner(self) -> uuid.UUID | None:
        """Whose keys: a tenant's, or (None) the operators'."""
        return self.tenant_id


@extend_schema_view(
    get=extend_schema(operation_id="list_api_keys"), post=extend_schema(operation_id="create_api_key")
)
class ApiKeysView(_Keys):
    scopes = needs(GET=Scope.ADMIN, POST=Scope.ADMIN)
    parameters = frozenset({"limit", "cursor"})
    idempotent_post = True

    @extend_schema(responses=page_of(ApiKeyDocument))
    def get(self, request: Request) -> Response:
        """Keys, live and gone, oldest first."""
        keys = ApiKey.objects.filter(tenant=self.owner)
        return keyset_page(request, keys, ["created_at", "id"], show_key)

    @extend_schema(request=NewApiKey, responses={201: IssuedKeyDocument})
    def post(self, request: Request) -> Response:
        """A new key; its text is in this answer and nowhere else."""
        form = self.read(NewApiKey)

        def create() -> Response:
            return _issued(create_api_key(tenant_id=self.owner, **form, actor=self.actor), self.base)

        return once(request, create)


@extend_schema_view(get=extend_schema(operation_id="get_api_key"))
class ApiKeyView(_Keys):
    scopes = needs(GET=Scope.ADMIN)

    @extend_schema(responses=ApiKeyDocument)
    def get(self, request: Request, key_id: str) -> Response:
        """One key."""
        key = ApiKey.objects.filter(tenant=self.owner, pk=key_id).first()
        if key is None:
            raise NotFound("no such key")
        return Response(show_key(key))


@extend_schema_view(post=extend_schema(operation_id="rotate_api_key"))
class RotateApiKeyView(_Keys):
    scopes = needs(POST=Scope.ADMIN)
    idempotent_post = True

    @extend_schema(request=RotateApiKey, responses={201: IssuedKeyDocument})
    def post(self, request: Request, key_id: str) -> Response:
        """A successor; the old key goes on for the grace period."""
        form = self.read(RotateApiKey)

        def create() -> Response:
            issued = rotate_api_key(
                tenant_id=self.owner,
                key_id=key_id,
                grace=timedelta(seconds=form["grace_seconds"]),
                actor=self.actor,
                reason=form["reason"],
            )
            return _issued(issued, self.base)

        return once(request, create)


@extend_schema_view(post=extend_schema(operation_id="revoke_api_key"))
class RevokeApiKeyView(_Keys):
    scopes = needs(POST=Scope.ADMIN)

    @extend_schema(request=Because, responses=ApiKeyDocument)
    def post(self, request: Request, key_id: str) -> Response:
        """Ends the key. Routers know within seconds."""
        key = revoke_api_key(
            tenant_id=self.owner, key_id=key_id, actor=self.actor, reason=self.read(Because)["reason"]
        )
        return Response(show_key(key))


class _OperatorKeys(_Keys):
    """The same for tenantless keys."""

    base = "/v1/admin/api-keys"
    needs_tenant = False

    @property
    def owner(self) -> uuid.UUID | None:
        return None


@extend_schema_view(
    get=extend_schema(operation_id="list_operator_keys"),
    post=extend_schema(operation_id="create_operator_key"),
)
class OperatorKeysView(_OperatorKeys, ApiKeysView):
    scopes = needs(GET=Scope.OPERATOR, POST=Scope.OPERATOR)


@extend_schema_view(get=extend_schema(operation_id="get_operator_key"))
class OperatorKeyView(_OperatorKeys, ApiKeyView):
    scopes = needs(GET=Scope.OPERATOR)


@extend_schema_view(post=extend_schema(operation_id="rotate_operator_key"))
class RotateOperatorKeyView(_OperatorKeys, RotateApiKeyView):
    scopes = needs(POST=Scope.OPERATOR)


@extend_schema_view(post=extend_schema(operation_id="revoke_operator_key"))
class RevokeOperatorKeyView(_OperatorKeys, RevokeApiKeyView):
    scopes = needs(POST=Scope.OPERATOR)
