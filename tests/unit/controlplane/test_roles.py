"""Roles: each holds all that the one below it holds."""

from __future__ import annotations

from cells.contract import TENANT_SCOPES, Scope, allows
from controlplane.tenants.roles import KEY_SCOPES, ROLE_SCOPES, Role, scopes_of


def _can(role: Role, payloads: bool = False) -> set[Scope]:
    return {s for s in Scope if allows(scopes_of(role, may_see_payloads=payloads), s)}


def test_each_role_can_what_lower_ones_can() -> None:
    assert _can(Role.VIEWER) < _can(Role.DEVELOPER) < _can(Role.ADMIN) == _can(Role.OWNER)


def test_what_a_developer_cannot() -> None:
    assert not _can(Role.DEVELOPER) & {Scope.ADMIN, Scope.TARGETS_APPROVE, Scope.PAYLOADS_READ}


def test_payloads_are_an_extra() -> None:
    assert _can(Role.VIEWER, payloads=True) - _can(Role.VIEWER) == {Scope.PAYLOADS_READ}


def test_no_role_and_no_key_reaches_beyond_its_tenant() -> None:
    for role in Role:
        assert not _can(role) & {Scope.OPERATOR, Scope.INTERNAL}
        assert ROLE_SCOPES[role] <= TENANT_SCOPES
    assert not KEY_SCOPES & {Scope.OPERATOR, Scope.INTERNAL}
