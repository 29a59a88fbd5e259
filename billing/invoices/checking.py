"""Holds numbered invoices against what they were made from: usage, books and contracts as they are stored
now. All of that is kept as it was: a difference is a fault of ours, or of somebody at the database."""

from __future__ import annotations

from datetime import datetime

import structlog

from billing.invoices.drafting import rated_again
from billing.invoices.lines import digest
from billing.invoices.models import Invoice
from billing.refusals import NotFound
from billing.running import going_on

_LOG = structlog.get_logger(__name__)


def agrees(invoice: Invoice) -> bool | None:
    """Whether a numbered invoice, rated again, is what it was, byte by byte; None: its tenant is gone."""
    try:
        return digest(rated_again(invoice)) == invoice.digest
    except NotFound:
        return None


def check_numbered(since: datetime) -> int:
    """Looks at every invoice that became final since an instant; how many are not what they were. Each is an
    error in the log, for a person: nothing is changed."""
    found = 0
    rows = Invoice.objects.filter(sequence__isnull=False, finalized_at__gte=since)
    for invoice in rows.order_by("sequence").iterator(chunk_size=200):
        with going_on("rate an invoice again", invoice=invoice.number):
            if agrees(invoice) is False:
                found += 1
                _LOG.error(
                    "a numbered invoice is not what its usage and prices come to",
                    invoice=invoice.number, tenant_id=str(invoice.tenant_id),
                )  # fmt: skip
    return found
