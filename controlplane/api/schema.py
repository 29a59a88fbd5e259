"""The OpenAPI 3.1 document of the management API."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers


class ProblemDocument(serializers.Serializer[Any]):
    """application/problem+json"""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    code = serializers.CharField()
    errors = serializers.ListField(child=serializers.DictField(), required=False)
    request_id = serializers.CharField(required=False)


_COMMON = {
    401: "no or a wrong key",
    403: "the key lacks the scope",
    422: "the request is not valid; every fault is listed",
}


class ApiSchema(AutoSchema):
    """Adds to each operation what all have in common."""

    def get_override_parameters(self) -> list[Any]:
        parameters = list(super().get_override_parameters())
        if getattr(self.view, "idempotent_post", False) and self.method == "POST":
            parameters.append(
                OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description="kept 24 h")
            )
        if self.method in ("PATCH", "PUT"):
            parameters.append(
                OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description='`"<version>"`')
            )
        known = {p.name for p in parameters}
        names = sorted(getattr(self.view, "parameters", ())) if self.method == "GET" else []
        parameters += [OpenApiParameter(n, str) for n in names if n not in known]
        return parameters

    def _get_response_bodies(self, direction: str = "response") -> Any:
        bodies = super()._get_response_bodies(direction)
        problem = self.resolve_serializer(ProblemDocument, direction).ref
        for status, text in _COMMON.items():
            bodies.setdefault(
                str(status),
                {"description": text, "content": {"application/problem+json": {"schema": problem}}},
            )
        return bodies

    def get_description(self) -> str:
        text = super().get_description() or ""
        scope = getattr(self.view, "scopes", {}).get(self.method)
        return f"{text}\n\nScope: `{scope.value}`." if scope else text

    def get_auth(self) -> list[dict[str, Any]]:
        """The needed scope, as the role of the security requirement."""
        scope = getattr(self.view, "scopes", {}).get(self.method)
        needs: list[dict[str, Any]] = super().get_auth()
        return [{scheme: [scope.value] if scope else roles for scheme, roles in n.items()} for n in needs]

    def get_tags(self) -> list[str]:
        parts = self.path.strip("/").split("/")
        return ["operators" if parts[1] == "admin" else parts[1].split(":")[0]]


def only_public_paths(endpoints: list[Any]) -> list[Any]:
    """The document is about /v1 only."""
    return [e for e in endpoints if e[0].startswith("/v1/")]
