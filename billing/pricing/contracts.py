"""Contracts: prices and minimums promised to one tenant."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from django.db import transaction
from django.db.models import Max

from billing.charging.book import Override
from billing.charging.machine import InvoiceState
from billing.hooks import Actor, audit
from billing.invoices.models import Invoice
from billing.pricing.accounts import account_of, lock_account
from billing.pricing.models import Contract
from billing.pricing.terms import read_terms, shown_terms, stored_terms, terms_faults
from billing.refusals import Conflicting, NotFound, refuse_faults


def as_override(row: Contract) -> Override:
    """A stored contract, for `charge`."""
    return Override(
        effective_from=row.effective_from,
        effective_until=row.effective_until,
        **read_terms(row.prices, row.minimum),
        note=row.note,
    )


def overrides_of(tenant_id: uuid.UUID) -> list[Override]:
    """Everything a tenant was promised, oldest first."""
    return [
        as_override(row) for row in Contract.objects.filter(tenant_id=tenant_id).order_by("effective_from")
    ]


def find_contract(contract_id: uuid.UUID) -> Contract:
    """A stored contract."""
    row = Contract.objects.filter(pk=contract_id).first()
    if row is None:
        raise NotFound("no such contract")
    return row


def invoiced_until(tenant_id: uuid.UUID) -> date | None:
    """The first day that no invoice which counts covers; None: there is no invoice."""
    numbered = Invoice.objects.filter(tenant_id=tenant_id, sequence__isnull=False)
    until: date | None = numbered.exclude(state=InvoiceState.VOID).aggregate(until=Max("period_end"))["until"]
    return until


def drafted(
    *,
    tenant_id: uuid.UUID,
    effective_from: date,
    effective_until: date | None,
    prices: Sequence[Mapping[str, Any]],
    minimum: str | None,
) -> Override:
    """A contract that is not stored, checked; `Invalid` with every fault."""
    said = {"effective_from": effective_from, "effective_until": effective_until}
    refuse_faults(_faults(tenant_id=tenant_id, prices=prices, minimum=minimum, **said))
    return Override(**read_terms(prices, minimum), **said)


@transaction.atomic
def create_contract(
    *,
    tenant_id: uuid.UUID,
    effective_from: date,
    effective_until: date | None = None,
    prices: Sequence[Mapping[str, Any]] = (),
    minimum: str | None = None,
    note: str = "",
    actor: Actor,
    reason: str,
) -> Contract:
    """A promise from a day on (until another, if any). Days that were invoiced stay as they are."""
    lock_account(tenant_id)
    refuse_faults(
        _faults(
            tenant_id=tenant_id,
            effective_from=effective_from,
            effective_until=effective_until,
            prices=prices,
            minimum=minimum,
        )
    )
    row = Contract.objects.create(
        tenant_id=tenant_id,
        effective_from=effective_from,
        effective_until=effective_until,
        **stored_terms(prices, minimum),
        note=note,
        created_by=actor.name,
    )
    row.refresh_from_db()
    audit(
        action="contract.create", subject=row.public_id, tenant_id=tenant_id, actor=actor, reason=reason,
        after=described(row),
    )  # fmt: skip
    return row


@transaction.atomic
def end_contract(*, contract_id: uuid.UUID, effective_until: date, actor: Actor, reason: str) -> Contract:
    """Says on which day a contract no longer holds. Neither its old nor its new end may lie in days
    that were invoiced."""
    found = find_contract(contract_id)
    lock_account(found.tenant_id)
    row = Contract.objects.get(pk=contract_id)
    until = invoiced_until(row.tenant_id)
    if row.effective_until is not None and until is not None and row.effective_until < until:
        raise Conflicting(f"it ended on {row.effective_until}, and those days are invoiced")
    faults = _invoiced_faults(row.tenant_id, "/effective_until", effective_until)
    if effective_until <= row.effective_from:
        faults.append(("/effective_until", f"must lie behind {row.effective_from}, its first day"))
    refuse_faults(faults)
    before = described(row)
    row.effective_until = effective_until
    row.save(update_fields=["effective_until"])
    audit(
        action="contract.end", subject=row.public_id, tenant_id=row.tenant_id, actor=actor, reason=reason,
        before=before, after=described(row),
    )  # fmt: skip
    return row


def described(row: Contract) -> dict[str, Any]:
    """A contract as a document."""
    return {
        "effective_from": row.effective_from.isoformat(),
        "effective_until": row.effective_until.isoformat() if row.effective_until else None,
        **shown_terms(row.prices, row.minimum),
        "note": row.note,
    }


def _invoiced_faults(tenant_id: uuid.UUID, pointer: str, day: date) -> list[tuple[str, str]]:
    until = invoiced_until(tenant_id)
    if until is not None and day < until:
        return [(pointer, f"days before {until} are invoiced, and stay as they are")]
    return []


def _faults(
    *,
    tenant_id: uuid.UUID,
    effective_from: date,
    effective_until: date | None,
    prices: Sequence[Mapping[str, Any]],
    minimum: str | None,
) -> list[tuple[str, str]]:
    account = account_of(tenant_id)
    faults = terms_faults(prices, minimum, account.currency)
    if not prices and minimum is None:
        faults.append(("/prices", "a contract promises prices, a minimum or both"))
    if effective_until is not None and effective_until <= effective_from:
        faults.append(("/effective_until", "must lie behind effective_from"))
    if Contract.objects.filter(tenant_id=tenant_id, effective_from=effective_from).exists():
        faults.append(("/effective_from", "another contract begins that day"))
    faults += _invoiced_faults(tenant_id, "/effective_from", effective_from)
    return faults
