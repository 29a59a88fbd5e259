"""Members: owners make owners, a tenant keeps one, tenants do not reach into each other."""

from __future__ import annotations

import dataclasses

import pytest
from django.contrib.auth import authenticate

from controlplane.actors import Actor
from controlplane.errors import Conflicting, Forbidden, Invalid, NotFound, VersionMismatch
from controlplane.tenants.actions.members import add_member, change_role, remove_member
from controlplane.tenants.models import Membership, Tenant, User
from controlplane.tenants.roles import Role
from tests.component.controlplane.contents import contents
from tests.component.controlplane.factories import MembershipFactory, TenantFactory, UserFactory

pytestmark = pytest.mark.django_db

ADMIN = Actor(name="user:admin", source="console")
OWNER = dataclasses.replace(ADMIN, name="user:owner", owner=True)


@pytest.fixture
def tenant(control: None) -> Tenant:
    tenant: Tenant = TenantFactory()
    return tenant


def test_somebody_new_gets_an_account_without_a_password(tenant: Tenant) -> None:
    member = add_member(
        tenant_id=tenant.id, email=" Ada@Example.COM ", role="viewer", name="Ada", actor=ADMIN, reason=""
    )
    assert (member.user.email, member.user.name) == ("ada@example.com", "Ada")
    assert not member.user.has_usable_password()
    assert authenticate(email="ada@example.com", password="") is None


def test_somebody_known_keeps_their_account(tenant: Tenant) -> None:
    user = UserFactory()
    member = add_member(
        tenant_id=tenant.id, email=user.email.upper(), role="admin", name="Other", actor=ADMIN, reason=""
    )
    assert member.user == user
    assert User.objects.get(pk=user.pk).name == user.name


def test_a_person_is_a_member_once(tenant: Tenant) -> None:
    member = MembershipFactory(tenant=tenant)
    with pytest.raises(Conflicting):
        add_member(tenant_id=tenant.id, email=member.user.email, role="viewer", actor=ADMIN, reason="")
    assert Membership.objects.filter(tenant=tenant).count() == 1


def test_all_faults(tenant: Tenant) -> None:
    with pytest.raises(Invalid) as refused:
        add_member(tenant_id=tenant.id, email="nobody", role="king", actor=ADMIN, reason="")
    assert {f.pointer for f in refused.value.faults} == {"/email", "/role"}


def test_only_owners_make_and_unmake_owners(tenant: Tenant) -> None:
    owner, other = MembershipFactory(tenant=tenant, role="owner"), MembershipFactory(tenant=tenant)
    before = contents()
    for act in (
        lambda: add_member(tenant_id=tenant.id, email="o@example.com", role="owner", actor=ADMIN, reason=""),
        lambda: change_role(tenant_id=tenant.id, member_id=other.id, role="owner", actor=ADMIN, reason=""),
        lambda: change_role(tenant_id=tenant.id, member_id=owner.id, role="viewer", actor=ADMIN, reason=""),
        lambda: remove_member(tenant_id=tenant.id, member_id=owner.id, actor=ADMIN, reason=""),
    ):
        with pytest.raises(Forbidden):
            act()
    assert contents() == before
    raised = change_role(tenant_id=tenant.id, member_id=other.id, role="owner", actor=OWNER, reason="")
    assert (raised.role, raised.version) == (Role.OWNER, 2)


def test_the_last_owner_stays(tenant: Tenant) -> None:
    owner = MembershipFactory(tenant=tenant, role="owner")
    with pytest.raises(Conflicting):
        change_role(tenant_id=tenant.id, member_id=owner.id, role="admin", actor=OWNER, reason="")
    with pytest.raises(Conflicting):
        remove_member(tenant_id=tenant.id, member_id=owner.id, actor=OWNER, reason="")
    MembershipFactory(tenant=tenant, role="owner")
    remove_member(tenant_id=tenant.id, member_id=owner.id, actor=OWNER, reason="")
    assert not Membership.objects.filter(pk=owner.pk).exists()
    assert User.objects.filter(pk=owner.user_id).exists()


def test_members_of_others_are_not_found(tenant: Tenant) -> None:
    stranger = MembershipFactory()
    before = contents()
    with pytest.raises(NotFound):
        change_role(tenant_id=tenant.id, member_id=stranger.id, role="viewer", actor=OWNER, reason="")
    with pytest.raises(NotFound):
        remove_member(tenant_id=tenant.id, member_id=stranger.id, actor=OWNER, reason="")
    assert contents() == before


def test_a_stale_change_is_refused(tenant: Tenant) -> None:
    member = MembershipFactory(tenant=tenant)
    change_role(
        tenant_id=tenant.id, member_id=member.id, may_see_payloads=True, expected_version=1,
        actor=ADMIN, reason="",
    )  # fmt: skip
    with pytest.raises(VersionMismatch):
        change_role(
            tenant_id=tenant.id, member_id=member.id, role="viewer", expected_version=1,
            actor=ADMIN, reason="",
        )  # fmt: skip
