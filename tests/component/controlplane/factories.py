"""Rows for tests, made by the use-cases that make them in earnest."""

from __future__ import annotations

import uuid
from typing import Any

import factory
from factory.django import DjangoModelFactory

from controlplane.actors import service
from controlplane.tenants.actions.members import add_member
from controlplane.tenants.actions.tenants import create_tenant
from controlplane.tenants.models import Membership, Tenant, User
from controlplane.topology.actions.cells import register_cell
from controlplane.topology.actions.regions import register_region
from controlplane.topology.models import Cell, Region

ACTOR = service("tests")
REASON = "a test"


class RegionFactory(DjangoModelFactory[Region]):
    class Meta:
        model = Region

    name = "here"

    @classmethod
    def _create(cls, model_class: type[Region], *args: Any, **kwargs: Any) -> Region:
        return register_region(**kwargs, actor=ACTOR, reason=REASON)


class CellFactory(DjangoModelFactory[Cell]):
    class Meta:
        model = Cell

    # Cells' ownership rows outlive a rolled-back test, so their names do not repeat.
    name = factory.LazyFunction(lambda: f"cell-{uuid.uuid4().hex[:10]}")
    region = "here"
    url = "http://127.0.0.1:1"
    key = bytes(range(32))
    capacity_runs_per_second = 5_000

    @classmethod
    def _create(cls, model_class: type[Cell], *args: Any, **kwargs: Any) -> Cell:
        RegionFactory(name=kwargs["region"])
        return register_cell(**kwargs, actor=ACTOR, reason=REASON)


class TenantFactory(DjangoModelFactory[Tenant]):
    class Meta:
        model = Tenant

    slug = factory.Sequence(lambda n: f"tenant-{n}")
    name = factory.Sequence(lambda n: f"Tenant {n}")
    home_region = "here"

    @classmethod
    def _create(cls, model_class: type[Tenant], *args: Any, **kwargs: Any) -> Tenant:
        if not Cell.objects.filter(region=kwargs["home_region"]).exists():
            CellFactory(region=kwargs["home_region"])
        return create_tenant(**kwargs, actor=ACTOR, reason=REASON)


class UserFactory(DjangoModelFactory[User]):
    class Meta:
        model = User

    email = factory.Sequence(lambda n: f"person-{n}@example.com")
    password = factory.django.Password("correct horse")


class MembershipFactory(DjangoModelFactory[Membership]):
    class Meta:
        model = Membership

    tenant = factory.SubFactory(TenantFactory)
    user = factory.SubFactory(UserFactory)
    role = "developer"

    @classmethod
    def _create(cls, model_class: type[Membership], *args: Any, **kwargs: Any) -> Membership:
        return add_member(
            tenant_id=kwargs["tenant"].id,
            email=kwargs["user"].email,
            role=kwargs["role"],
            may_see_payloads=kwargs.get("may_see_payloads", False),
            actor=ACTOR,
            reason=REASON,
        )
