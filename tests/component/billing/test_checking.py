"""Numbered invoices are held against what they were made from."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from billing.invoices.checking import agrees, check_numbered
from billing.models import UsageDay
from tests.component.billing.test_invoices import NOW, final
from tests.component.controlplane.factories import MembershipFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant(control: None) -> Any:
    return MembershipFactory(role="owner").tenant


def test_an_invoice_is_what_its_usage_and_prices_come_to(tenant: Any) -> None:
    invoice = final(tenant)
    assert agrees(invoice)
    assert check_numbered(NOW - timedelta(days=1)) == 0
    with connection.cursor() as cursor:  # somebody at the database, past all triggers
        cursor.execute("ALTER TABLE billing_usage_day DISABLE TRIGGER USER")
        UsageDay.objects.update(quantity=4_000_000)
        cursor.execute("ALTER TABLE billing_usage_day ENABLE TRIGGER USER")
    assert agrees(invoice) is False
    assert check_numbered(NOW - timedelta(days=1)) == 1
    assert check_numbered(NOW + timedelta(days=1)) == 0


def test_of_a_tenant_that_is_gone_nothing_is_compared(tenant: Any) -> None:
    invoice = final(tenant)
    invoice.tenant_id = type(invoice.tenant_id)(int=1)
    assert agrees(invoice) is None
