"""Billing accounts: in which currency, under which name and with which taxes a tenant is billed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal, InvalidOperation
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from billing.budgets.models import Budget
from billing.charging.charge import TaxRate
from billing.charging.documents import shown
from billing.charging.money import CURRENCIES, NO_CURRENCY
from billing.hooks import Actor, audit, people_of
from billing.ids import TENANT, encode
from billing.invoices.models import Invoice
from billing.pricing.models import BillingAccount, ChargeBook, Contract
from billing.refusals import Conflicting, NotFound, VersionMismatch, refuse_faults
from billing.sql import named_sql
from billing.stripe.amounts import is_writable

_SQL = named_sql("invoices")
_MOST_TAXES = 5
_FIELDS = ("currency", "legal_name", "address", "tax_id", "emails", "taxes")


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """How a tenant is billed. `emails` are those of its account, else its owners'."""

    tenant_id: uuid.UUID
    currency: str
    name: str
    legal_name: str
    address: str
    tax_id: str
    emails: tuple[str, ...]
    taxes: tuple[TaxRate, ...]
    version: int

    @property
    def recipient(self) -> dict[str, Any]:
        """Whom an invoice names, as it is kept with it."""
        return {
            "name": self.legal_name or self.name,
            "address": self.address,
            "tax_id": self.tax_id,
            "emails": list(self.emails),
        }


def account_of(tenant_id: uuid.UUID) -> Account:
    """The account, as it holds now. `NotFound` if there is no such tenant."""
    found = accounts_of([tenant_id]).get(tenant_id)
    if found is None:
        raise NotFound("no such tenant")
    return found


def accounts_of(tenants: Sequence[uuid.UUID]) -> dict[uuid.UUID, Account]:
    """The accounts of some tenants; those that are none are left out. Of a tenant that is gone for good the
    account is what was frozen: what it owes is billed all the same."""
    rows = BillingAccount.objects.in_bulk(tenants)
    people = people_of(tenants)
    nobody: tuple[str, list[str]] = ("", [])
    return {
        tenant_id: _account(
            rows.get(tenant_id)
            or BillingAccount(tenant_id=tenant_id, currency=settings.BILLING_CURRENCY, version=1),
            *people.get(tenant_id, nobody),
        )
        for tenant_id in {**people, **rows}
    }


def _account(row: BillingAccount, name: str, owners: Sequence[str]) -> Account:
    return Account(
        tenant_id=row.tenant_id,
        currency=row.currency,
        name=name,
        legal_name=row.legal_name,
        address=row.address,
        tax_id=row.tax_id,
        emails=tuple(row.emails or owners),
        taxes=tuple(TaxRate(name=t["name"], rate=Decimal(t["rate"])) for t in row.taxes),
        version=row.version,
    )


def lock_account(tenant_id: uuid.UUID) -> None:
    """Takes the tenant's lock until the transaction ends: before invoices, before number series."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["lock_account"], {"tenant_id": tenant_id, "currency": settings.BILLING_CURRENCY})


@transaction.atomic
def freeze_account(tenant_id: uuid.UUID) -> None:
    """Writes down what invoices need of a tenant that goes for good: its name and its owners' addresses,
    where its account says nothing else. Again, or when it is gone: what is written stays."""
    found = people_of([tenant_id]).get(tenant_id)
    if found is None:
        return
    name, owners = found
    lock_account(tenant_id)
    row = BillingAccount.objects.get(pk=tenant_id)
    said: dict[str, Any] = {} if row.legal_name else {"legal_name": name}
    if not row.emails and owners:
        said["emails"] = list(owners)
    if said:
        BillingAccount.objects.filter(pk=tenant_id).update(**said, version=F("version") + 1, updated_at=Now())


def shown_taxes(taxes: Sequence[TaxRate]) -> list[dict[str, str]]:
    """Taxes as documents."""
    return [{"name": tax.name, "rate": shown(tax.rate)} for tax in taxes]


@transaction.atomic
def edit_account(
    *,
    tenant_id: uuid.UUID,
    changes: Mapping[str, Any],
    expected_version: int | None = None,
    actor: Actor,
    reason: str,
) -> Account:
    """Changes what is given. What is final keeps what it says; the currency stays once anything is, or
    anything else was said in it."""
    before = account_of(tenant_id)
    refuse_faults(_faults(changes))
    lock_account(tenant_id)
    row = BillingAccount.objects.get(pk=tenant_id)
    if expected_version not in (None, row.version):
        raise VersionMismatch(row.version)
    if changes.get("currency", row.currency) != row.currency:
        _check_currency(tenant_id, row.currency, changes["currency"])
    said = {name: changes[name] for name in _FIELDS if name in changes}
    if "taxes" in said:
        said["taxes"] = [{"name": t["name"].strip(), "rate": t["rate"]} for t in said["taxes"]]
    old = {name: getattr(row, name) for name in said}
    if any(old[name] != said[name] for name in said):
        BillingAccount.objects.filter(pk=tenant_id).update(**said, version=F("version") + 1, updated_at=Now())
        audit(
            action="billing_account.edit", subject=encode(TENANT, tenant_id), tenant_id=tenant_id,
            actor=actor, reason=reason, before=old, after=said,
        )  # fmt: skip
        return account_of(tenant_id)
    return before


def _check_currency(tenant_id: uuid.UUID, old: str, new: str) -> None:
    """Numbers without a currency of their own must not come to mean another, and there must be prices."""
    rows: dict[str, QuerySet[Any]] = {
        "invoices": Invoice.objects.filter(tenant_id=tenant_id, sequence__isnull=False),
        "contracts": Contract.objects.filter(tenant_id=tenant_id),
        "a budget": Budget.objects.filter(tenant_id=tenant_id),
    }
    there = [what for what, found in rows.items() if found.exists()]
    if there:
        raise Conflicting(f"there are {' and '.join(there)} in {old}: the currency stays")
    today = timezone.now().astimezone(UTC).date()
    faults = []
    if not ChargeBook.objects.filter(currency=new, effective_from__lte=today).exists():
        faults.append(("/currency", f"no price book in {new} is in force: usage would have no price"))
    if settings.BILLING_STRIPE["key"] and not is_writable(new):
        faults.append(("/currency", f"Stripe cannot write every amount in {new}"))
    refuse_faults(faults)


def _faults(changes: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = []
    if "currency" in changes and changes["currency"] not in CURRENCIES:
        found.append(("/currency", NO_CURRENCY))
    taxes = changes.get("taxes", ())
    if len(taxes) > _MOST_TAXES:
        found.append(("/taxes", f"at most {_MOST_TAXES}"))
    names = [tax["name"].strip() for tax in taxes]
    for i, tax in enumerate(taxes):
        if names.count(names[i]) > 1:
            found.append((f"/taxes/{i}/name", "is there twice"))
        try:
            rate = Decimal(tax["rate"])
        except InvalidOperation:
            rate = Decimal(-1)
        if not 0 <= rate <= 1 or not rate.is_finite():
            found.append((f"/taxes/{i}/rate", "a number from 0 to 1: 0.19 for 19 %"))
    return found
