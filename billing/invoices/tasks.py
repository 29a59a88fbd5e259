"""Celery tasks of invoices. Each can stop anywhere and run again: what is done stays done."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from celery import shared_task
from django.conf import settings

from billing.charging.machine import InvoiceState
from billing.hooks import BILLING
from billing.invoices import checking, drafting, settling
from billing.invoices.models import Invoice
from billing.pricing.many import Rated, rated
from billing.running import going_on

#: Months that were closed longer ago are drafted by hand.
_LOOKS_BACK = timedelta(days=70)
#: Tenants that are rated together.
_TOGETHER = 200


@shared_task(name="billing.invoices.tasks.draft_closed_months")
def draft_closed_months() -> int:
    """A draft for each closed month that never had an invoice; says how many were made."""
    return draft_closed(datetime.now(UTC) - _LOOKS_BACK)


def draft_closed(since: datetime) -> int:
    """The same for months closed since an instant."""
    made = 0
    months = itertools.groupby(drafting.to_be_drafted(since), key=lambda due: due[1])
    for month, due in months:
        while page := [tenant_id for tenant_id, _ in itertools.islice(due, _TOGETHER)]:
            made += _draft(page, month)
    return made


def _draft(tenants: Sequence[uuid.UUID], month: date) -> int:
    """Drafts of some tenants' month, rated together: one by one where that fails."""
    known: dict[uuid.UUID, Rated] = {}
    with going_on("rate a month", month=f"{month:%Y-%m}"):
        known = {each.tenant_id: each for each in rated(tenants, month)}
    made = 0
    for tenant_id in tenants:
        with going_on("draft an invoice", tenant_id=str(tenant_id), month=f"{month:%Y-%m}"):
            found = drafting.open_draft(
                tenant_id=tenant_id, month=month, rated=known.get(tenant_id), actor=BILLING,
                reason="the month is closed",
            )  # fmt: skip
            made += found is not None
    return made


@shared_task(name="billing.invoices.tasks.check_invoices")
def check_invoices() -> int:
    """Rates the invoices of the last months again; how many are not what they were."""
    return checking.check_numbered(datetime.now(UTC) - _LOOKS_BACK)


@shared_task(name="billing.invoices.tasks.finalize_reviewed")
def finalize_reviewed() -> int:
    """Finalises drafts that lay open for review long enough; says how many."""
    return finalize_drafts(datetime.now(UTC))


def finalize_drafts(now: datetime) -> int:
    """The same at an instant. Oldest months first, so that numbers follow time where they can."""
    before = now - timedelta(days=settings.BILLING_REVIEW_DAYS)
    drafts = Invoice.objects.filter(state=InvoiceState.DRAFT, created_at__lte=before)
    made = 0
    for invoice_id in drafts.order_by("period_start", "id").values_list("id", flat=True):
        with going_on("finalise an invoice", invoice=str(invoice_id)):
            settling.finalize(invoice_id=invoice_id, now=now, actor=BILLING, reason="review is over")
            made += 1
    return made
