"""From an invoice's line to the usage days it stands for, and from a day to its meter records."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from django.db import connection

from billing.charging.charge import ADJUSTMENT, USAGE
from billing.invoices.models import Invoice, InvoiceLine
from billing.models import UsageAdjustment
from billing.months import DAY, start_of
from billing.refusals import NotFound
from billing.sql import named_sql
from billing.usage import usage_of

_SQL = named_sql("invoices")
Mark = tuple[datetime, str, int, int, str, str]  # minute, cell, store, epoch, host, correction


@dataclass(frozen=True, kw_only=True, slots=True)
class UsedDay:
    """What a cell counted on a day, as the invoice knows it."""

    day: date
    cell: str
    quantity: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A meter record of the ledger, or a correction of the record before it."""

    minute: datetime
    cell: str
    store: int
    epoch: int
    host: str
    correction: str  # its id; empty: the record itself
    quantity: int
    reason: str  # of the correction

    @property
    def mark(self) -> Mark:
        """Its place among the records of a day."""
        return (self.minute, self.cell, self.store, self.epoch, self.host, self.correction)


def mark_text(mark: Mark) -> list[str]:
    """A place among records as texts, for a cursor."""
    minute, *rest = mark
    return [minute.isoformat(), *(str(part) for part in rest)]


def mark_of(texts: Sequence[str]) -> Mark | None:
    """The place that texts name; None if they name none."""
    try:
        minute, cell, store, epoch, host, correction = texts
        at, number, raised = datetime.fromisoformat(minute), int(store), int(epoch)
    except ValueError:
        return None
    if at.tzinfo is None or not 0 <= number < 2**15 or not 0 <= raised < 2**63:
        return None
    return at, cell, number, raised, host, correction


def find_line(invoice: Invoice, n: int) -> InvoiceLine:
    """A line by its number."""
    line: InvoiceLine | None = invoice.lines.filter(n=n).first()
    if line is None:
        raise NotFound(f"no line {n}")
    return line


def days_of_line(invoice: Invoice, line: InvoiceLine) -> list[UsedDay]:
    """The days whose usage the line prices, alone or with other lines of the same metric (tiers and
    what is included divide it). Minimums and taxes rest on other lines: they have none."""
    if line.kind == USAGE:
        return [
            UsedDay(day=used.day, cell=used.cell, quantity=used.quantity)
            for used in usage_of(invoice.tenant_id, line.start, line.end)
            if (used.metric, used.region_policy) == (line.metric, line.region_policy)
        ]
    if line.kind == ADJUSTMENT:
        rows = UsageAdjustment.objects.filter(
            tenant_id=invoice.tenant_id, into_month=invoice.period_start, day__gte=line.start,
            day__lt=line.end, metric=line.metric, region_policy=line.region_policy,
        )  # fmt: skip
        return [
            UsedDay(day=row.day, cell=row.cell, quantity=row.quantity) for row in rows.order_by("day", "cell")
        ]
    return []


def records_of_day(
    invoice: Invoice, line: InvoiceLine, day: date, *, after: Mark | None, limit: int
) -> list[Record]:
    """The meter records of one of the line's days and their corrections, a page at a time."""
    if line.kind not in (USAGE, ADJUSTMENT) or not line.start <= day < line.end:
        raise NotFound(f"no usage of line {line.n} on {day}")
    return records_of(
        invoice.tenant_id, day, metric=line.metric, region_policy=line.region_policy, after=after, limit=limit
    )


def records_of(
    tenant_id: uuid.UUID, day: date, *, metric: str, region_policy: str, after: Mark | None, limit: int
) -> list[Record]:
    """The meter records of a tenant's day of a metric and policy and their corrections, a page at a time."""
    mark: dict[str, Any] = dict(
        zip(
            ("after_minute", "after_cell", "after_store", "after_epoch", "after_host", "after_correction"),
            after or (None,) * 6,
            strict=True,
        )
    )
    with connection.cursor() as cursor:
        cursor.execute(
            _SQL["records_of_line"],
            {
                "tenant_id": tenant_id,
                "metric": metric,
                "region_policy": region_policy,
                "since": start_of(day),
                "until": start_of(day + DAY),
                **mark,
                "limit": limit,
            },
        )
        return [
            Record(
                minute=minute,
                cell=cell,
                store=store,
                epoch=epoch,
                host=host,
                correction=correction,
                quantity=quantity,
                reason=reason,
            )
            for minute, cell, store, epoch, host, correction, quantity, reason in cursor.fetchall()
        ]
