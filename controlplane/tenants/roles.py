"""Roles and what they allow, in the same scopes that API keys hold. One table."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import models

from cells.contract import TENANT_SCOPES, Scope


class Role(models.TextChoices):
    """What a person is in a tenant."""

    OWNER = "owner", "Owner"  # an admin who also makes and unmakes owners
    ADMIN = "admin", "Admin"  # everything inside the tenant
    DEVELOPER = "developer", "Developer"  # jobs, targets and workflows, no people and keys
    VIEWER = "viewer", "Viewer"  # looks


_VIEW = frozenset({Scope.JOBS_READ, Scope.WORKFLOWS_READ, Scope.USAGE_READ})

ROLE_SCOPES: Mapping[Role, frozenset[Scope]] = {
    Role.OWNER: frozenset({Scope.ADMIN}),
    Role.ADMIN: frozenset({Scope.ADMIN}),
    Role.DEVELOPER: _VIEW | {Scope.JOBS_WRITE, Scope.JOBS_TRIGGER, Scope.WORKFLOWS_WRITE},
    Role.VIEWER: _VIEW,
}

#: What a tenant's API key may hold.
KEY_SCOPES: frozenset[Scope] = TENANT_SCOPES


def scopes_of(role: str, *, may_see_payloads: bool) -> frozenset[Scope]:
    """The scopes of a member."""
    extra = {Scope.PAYLOADS_READ} if may_see_payloads else set()
    return ROLE_SCOPES[Role(role)] | extra
