"""Budgets tell at each threshold once, and slow LOW work down behind the grace."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.core import mail

from billing.budgets import forecasts, watching
from billing.budgets.models import BudgetAlert, LowDelay
from billing.hooks import BILLING
from billing.models import UsageDay
from billing.pricing import contracts
from billing.refusals import Invalid, NotFound, VersionMismatch
from controlplane.events.models import AuditEvent, OutboxItem
from controlplane.events.outbox import run_item
from controlplane.tenants.models import Tenant
from controlplane.topology.push import config_of
from tests.component.billing.months import used
from tests.component.controlplane.factories import MembershipFactory, TenantFactory

MONTH = date(2026, 11, 1)
NOW = datetime(2026, 11, 10, 12, tzinfo=UTC)
_BY: dict[str, Any] = {"actor": BILLING, "reason": "a test"}


@pytest.fixture
def tenant(control: None) -> Any:
    """Pays a dollar a run."""
    tenant = TenantFactory()
    MembershipFactory(tenant=tenant, role="owner")
    contracts.create_contract(
        tenant_id=tenant.id, effective_from=MONTH,
        prices=[{"metric": "job_runs", "model": "unit", "amount": "1"}], **_BY,
    )  # fmt: skip
    return tenant


def spend(tenant: Any, quantity: int) -> None:
    UsageDay.objects.filter(tenant_id=tenant.id).delete()
    used(tenant, (date(2026, 11, 9), "job_runs", "HOME_ASYNC", quantity))


def budget(tenant: Any, amount: str = "100", **more: Any) -> watching.BudgetState:
    return watching.set_budget(tenant_id=tenant.id, amount=amount, today=NOW.date(), **more, **_BY)


def config(tenant: Any) -> dict[str, Any]:
    return config_of(Tenant.objects.select_related("quota").get(pk=tenant.pk))


@pytest.mark.django_db
def test_each_threshold_is_told_once_a_month(tenant: Any) -> None:
    budget(tenant)
    told = []
    for quantity in (49, 50, 79, 85, 85, 101, 500):
        spend(tenant, quantity)
        told.append(watching.watch_all(NOW))
    assert told == [0, 1, 0, 1, 0, 1, 0]
    assert list(BudgetAlert.objects.order_by("id").values_list("threshold", flat=True)) == [50, 80, 100]
    assert AuditEvent.objects.filter(action="budget.reached", tenant_id=tenant.id).count() == 3
    for item in OutboxItem.objects.filter(topic="billing_mail_budget"):
        assert run_item(item.id)
    assert sorted(m.subject for m in mail.outbox) == [
        f"{tenant.name}: {threshold} % of the budget for November 2026" for threshold in (100, 50, 80)
    ]
    assert not LowDelay.objects.exists()  # nobody asked for a cap


@pytest.mark.django_db
def test_all_thresholds_at_once_are_three_alerts(tenant: Any) -> None:
    budget(tenant)
    spend(tenant, 200)
    assert watching.watch_all(NOW) == 3
    assert watching.watch_all(NOW + timedelta(days=1)) == 0


@pytest.mark.django_db
def test_a_cap_delays_low_work_behind_its_grace_until_the_month_ends(tenant: Any) -> None:
    budget(tenant, capped=True, grace_hours=12)
    spend(tenant, 150)
    watching.watch_all(NOW)
    reached = BudgetAlert.objects.get(threshold=100).at
    watching.watch_all(reached + timedelta(hours=11))
    assert config(tenant)["low_delayed"] is False
    version = Tenant.objects.get(pk=tenant.pk).version
    BudgetAlert.objects.filter(threshold=100).update(at=NOW)
    watching.watch_all(NOW + timedelta(hours=12))
    watching.watch_all(NOW + timedelta(hours=13))
    assert config(tenant)["low_delayed"] is True
    assert Tenant.objects.get(pk=tenant.pk).version == version + 1
    watching.watch_all(datetime(2026, 12, 1, 0, 5, tzinfo=UTC))
    assert config(tenant)["low_delayed"] is False
    actions = AuditEvent.objects.filter(action__startswith="tenant.").order_by("id")
    assert list(actions.values_list("action", flat=True))[-2:] == ["tenant.delay_low", "tenant.let_low_go"]


@pytest.mark.django_db
def test_a_raised_or_removed_budget_lets_low_work_go(tenant: Any) -> None:
    for undo in (
        lambda: budget(tenant, "1000", capped=True, grace_hours=0),
        lambda: budget(tenant, "100", capped=False),
        lambda: watching.remove_budget(tenant_id=tenant.id, **_BY),
    ):
        budget(tenant, capped=True, grace_hours=0)
        spend(tenant, 150)
        watching.watch_all(NOW)
        BudgetAlert.objects.update(at=NOW - timedelta(hours=1))
        watching.watch_all(NOW)
        assert config(tenant)["low_delayed"] is True
        undo()
        assert config(tenant)["low_delayed"] is False
    with pytest.raises(NotFound):
        watching.budget_state(tenant.id, NOW.date())


@pytest.mark.django_db
def test_a_raised_budget_has_its_own_alerts_and_grace(tenant: Any) -> None:
    budget(tenant, capped=True, grace_hours=12)
    spend(tenant, 150)
    assert watching.watch_all(NOW) == 3
    BudgetAlert.objects.update(at=NOW)
    assert budget(tenant, "240", capped=True, grace_hours=12).alerts[0].threshold == 50
    assert BudgetAlert.objects.count() == 1  # 80 and 100 % are not reached any more
    spend(tenant, 300)
    assert watching.watch_all(NOW + timedelta(days=10)) == 2
    assert not LowDelay.objects.exists()


@pytest.mark.django_db
def test_what_no_budget_can_be_is_refused(tenant: Any) -> None:
    for amount in ("0", "1.001"):
        with pytest.raises(Invalid, match="/amount"):
            budget(tenant, amount)
    made = budget(tenant)
    with pytest.raises(VersionMismatch):
        budget(tenant, "7", expected_version=made.budget.version + 1)


@pytest.mark.django_db
def test_forecasts_use_the_tenants_own_prices(tenant: Any) -> None:
    for day in range(1, 10):
        used(tenant, (date(2026, 11, day), "job_runs", "HOME_ASYNC", 10))
        used(tenant, (date(2026, 11, day), "run_attempts", "HOME_ASYNC", 20_000))
    found = forecasts.forecast_of(tenant.id, NOW.date())
    assert (str(found.so_far.net), str(found.expected.net)) == ("90.08", "300.50")
    added = forecasts.forecast_schedule(
        tenant.id, occurrences=30, region_policy="HOME_ASYNC", attempts=None, today=NOW.date()
    )
    assert added.planned.attempts == 30 * 2000
    assert str(added.total) == "30.06"
