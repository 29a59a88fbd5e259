"""Two at once: one wins, both hear the truth."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections

from controlplane.errors import Conflicting, Refused
from controlplane.tenants.actions.members import change_role
from controlplane.tenants.actions.tenants import create_tenant
from controlplane.tenants.models import ApiKey, Membership, Tenant, WorkspaceSchema
from controlplane.topology.models import Placement
from controlplane.workspace import pool
from tests.component.controlplane.factories import (
    ACTOR,
    REASON,
    CellFactory,
    MembershipFactory,
    TenantFactory,
)
from tests.component.controlplane.signed import Answer, tenant_admin

pytestmark = pytest.mark.django_db(transaction=True, serialized_rollback=True)


@pytest.fixture(autouse=True)
def _committed(transactional_db: None, ownership: object) -> Iterator[None]:
    yield
    connections.close_all()


def _at_once(*acts: Callable[[], Any]) -> list[Any]:
    """Results, or the refusals, in order."""
    start = threading.Barrier(len(acts))
    results: list[Any] = [None] * len(acts)

    def run(i: int) -> None:
        try:
            start.wait(10)
            results[i] = acts[i]()
        except Refused as e:
            results[i] = e
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def _new(slug: str, runs: int = 100) -> Callable[[], Tenant]:
    return lambda: create_tenant(
        slug=slug, name=slug, home_region="here", quotas={"job_runs_per_second": runs},
        actor=ACTOR, reason=REASON,
    )  # fmt: skip


def test_the_last_room_on_a_cell_is_given_once() -> None:
    CellFactory(capacity_runs_per_second=100)  # promises 400
    results = _at_once(*(_new(f"t-{n}") for n in range(6)))
    assert sum(isinstance(r, Tenant) for r in results) == 4
    assert sum(isinstance(r, Conflicting) for r in results) == 2
    assert Placement.objects.count() == Tenant.objects.count() == 4


def test_a_slug_is_given_once() -> None:
    CellFactory()
    results = _at_once(*[_new("same")] * 4)
    assert sum(isinstance(r, Tenant) for r in results) == 1
    assert sum(isinstance(r, Conflicting) for r in results) == 3
    assert WorkspaceSchema.objects.filter(state="CLAIMED").count() == 1


def test_schemas_are_claimed_once() -> None:
    CellFactory()
    pool.top_up(2)
    results = _at_once(*(_new(f"t-{n}") for n in range(4)))
    assert len({t.schema_name for t in results}) == 4


def test_the_last_two_owners_do_not_both_step_down() -> None:
    tenant = TenantFactory()
    owners = [MembershipFactory(tenant=tenant, role="owner") for _ in range(2)]
    results = _at_once(
        *(
            lambda m=m: change_role(  # type: ignore[misc]
                tenant_id=tenant.id, member_id=m.id, role="admin", actor=ACTOR, reason=REASON
            )
            for m in owners
        )
    )
    assert sum(isinstance(r, Conflicting) for r in results) == 1
    assert Membership.objects.filter(tenant=tenant, role="owner").count() == 1


def test_one_idempotency_key_makes_one_thing() -> None:
    tenant = TenantFactory()

    def create() -> Answer:
        return tenant_admin(tenant).post(
            "/v1/api-keys", {"name": "n", "scopes": ["jobs:read"]}, headers={"Idempotency-Key": "k"}
        )

    answers = _at_once(*[create] * 5)
    assert sorted(a.status for a in answers) == [200, 200, 200, 200, 201]
    assert len({a.text for a in answers}) == 1
    assert ApiKey.objects.filter(tenant=tenant).count() == 1
