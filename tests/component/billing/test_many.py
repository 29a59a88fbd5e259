"""Months of many tenants rated together are those rated one by one."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from typing import Any

import pytest

from billing.hooks import BILLING
from billing.invoices import settling
from billing.invoices.drafting import open_draft
from billing.invoices.models import Invoice
from billing.invoices.tasks import draft_closed
from billing.pricing.accounts import edit_account
from billing.pricing.contracts import create_contract
from billing.pricing.many import rated
from billing.pricing.statements import statement_of
from tests.component.billing.months import close, late, used
from tests.component.controlplane.factories import MembershipFactory

pytestmark = pytest.mark.django_db
SEPTEMBER, OCTOBER, NOVEMBER = date(2026, 9, 1), date(2026, 10, 1), date(2026, 11, 1)
RUNS = ("job_runs", "HOME_ASYNC")
_BY: Any = {"actor": BILLING, "reason": "a test"}


@pytest.fixture
def tenants(control: None) -> list[Any]:
    """A usual one; one with a contract and a tax; one that used nothing; one that was late; one that is
    owed something."""
    usual, promised, idle, tardy, owed = (MembershipFactory(role="owner").tenant for _ in range(5))
    for tenant in (usual, promised, tardy, owed):
        used(tenant, (NOVEMBER, *RUNS, 3_000_000), cell="cell-1")
        used(tenant, (NOVEMBER, *RUNS, 1_000_000), cell="cell-2")
    price = {"metric": "job_runs", "model": "unit", "amount": "3", "per": 1_000_000}
    create_contract(tenant_id=promised.id, effective_from=OCTOBER, prices=[price], minimum="40", **_BY)
    edit_account(tenant_id=promised.id, changes={"taxes": [{"name": "VAT", "rate": "0.19"}]}, **_BY)
    used(tardy, (OCTOBER, *RUNS, 500_000))
    close(tardy, OCTOBER)
    late(tardy, NOVEMBER, (OCTOBER, *RUNS, 2_000_000))
    used(owed, (SEPTEMBER, *RUNS, 2_000_000))
    late(owed, OCTOBER, (SEPTEMBER, *RUNS, -1_900_000))
    for month in (SEPTEMBER, OCTOBER):
        close(owed, month)
    draft = open_draft(tenant_id=owed.id, month=OCTOBER, **_BY)
    assert draft is not None
    settling.finalize(invoice_id=draft.id, now=datetime.now(UTC), **_BY)
    assert Invoice.objects.get(tenant_id=owed.id).total < 0
    return [usual, promised, idle, tardy, owed]


def test_together_they_come_to_what_each_comes_to(tenants: list[Any]) -> None:
    ids = [tenant.id for tenant in tenants]
    found = list(rated([*ids, uuid.uuid4()], NOVEMBER))
    assert [each.tenant_id for each in found] == ids
    for each in found:
        assert each.statement == statement_of(each.tenant_id, NOVEMBER), each.tenant_id
    kinds = [{line.kind for line in each.statement.lines} for each in found]
    assert kinds == [
        {"usage"}, {"usage", "minimum", "tax"}, set(), {"usage", "adjustment"}, {"usage", "adjustment"}
    ]  # fmt: skip


def test_a_page_is_a_handful_of_queries(tenants: list[Any], django_assert_max_num_queries: Any) -> None:
    ids = [tenant.id for tenant in tenants[:3]]
    with django_assert_max_num_queries(20):  # half of them set the search path
        assert len(list(rated(ids, NOVEMBER))) == 3


def test_drafts_are_what_finalising_comes_to(tenants: list[Any]) -> None:
    for tenant in tenants:
        close(tenant, NOVEMBER)
    draft_closed(datetime(2026, 1, 1, tzinfo=UTC))
    drafts = Invoice.objects.filter(period_start=NOVEMBER)
    assert drafts.count() == 4
    for draft in drafts:
        assert draft.total == statement_of(draft.tenant_id, NOVEMBER).total
