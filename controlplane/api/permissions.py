"""Scopes. A view says which one each of its methods needs; saying nothing means nobody."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rest_framework.exceptions import MethodNotAllowed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from cells.contract import Scope
from controlplane.api.principal import principal_of


def needs(**scopes: Scope) -> Mapping[str, Scope]:
    """`needs(GET=Scope.JOBS_READ)`: a view's `scopes`."""
    return MappingProxyType(scopes)


class HasScope(BasePermission):
    """`view.scopes`: method → scope."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if request.method == "OPTIONS":
            return bool(request.user)
        needed: Scope | None = getattr(view, "scopes", {}).get(request.method)
        if not request.user:
            return False
        if needed is None:
            if hasattr(view, (request.method or "").lower()):
                return False  # a method somebody forgot to say the scope of
            raise MethodNotAllowed(request.method or "")
        if principal_of(request).allows(needed):
            return True
        self.message = f"This needs the scope {needed.value}."
        return False
