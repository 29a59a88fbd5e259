"""Who a management request speaks for, as the router vouches for it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import cast

from rest_framework.request import Request

from cells.contract import Scope, allows
from controlplane.actors import Actor


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    """Stands where Django expects a user; is one to nobody but the API's views."""

    name: str  # `key:<id>`, `user:<uuid>`
    tenant_id: uuid.UUID | None  # None: an operator's key, acting for no tenant
    scopes: frozenset[str]
    source: str = ""

    is_authenticated = True
    is_active = True

    def allows(self, scope: Scope) -> bool:
        return allows(self.scopes, scope)

    @property
    def operator(self) -> bool:
        return Scope.OPERATOR in self.scopes

    def as_actor(self) -> Actor:
        """For use-cases. A key is never an owner, whatever its scopes: owners are people."""
        return Actor(name=self.name, operator=self.operator, owner=self.operator, source=self.source)


def principal_of(request: Request) -> Principal:
    """Who an authenticated request speaks for."""
    return cast(Principal, request.user)
