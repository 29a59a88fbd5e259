"""Billing periods: a tenant's UTC months, which close for good once every cell has sealed them.

The month is always an argument. What cells sealed says that it is over; only where nobody waits for
cells, the database's clock must say so.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from django.conf import settings
from django.db import connection, transaction
from django.utils.module_loading import import_string

from billing import watermarks
from billing.hooks import Service, audit
from billing.ids import TENANT, encode
from billing.models import BillingPeriod, UsageAdjustment
from billing.months import check_month, month_of, next_month, window
from billing.rollup import recompute_range
from billing.running import going_on
from billing.sql import named_sql
from billing.usage_models import PeriodState

_SQL = named_sql("periods")
#: Everybody who lived anywhere in [since, until).
ResidentsOf = Callable[[datetime, datetime], Sequence[uuid.UUID]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Period:
    """A closed month of a tenant: [start, end)."""

    tenant_id: uuid.UUID
    month: date
    start: datetime
    end: datetime
    closed_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Adjustment:
    """What became known of a day after its month had closed. Negative: a correction took it back."""

    day: date  # when it happened; its month is an earlier one than the one that bills it
    metric: str
    region_policy: str
    cell: str
    quantity: int


def closed(tenant_id: uuid.UUID, month: date) -> Period | None:
    """The tenant's month if it is closed: `usage.usage_of` it and `adjustments` into it are final."""
    start, end = window(month)
    closed_at = (
        BillingPeriod.objects.filter(tenant_id=tenant_id, month=month, state=PeriodState.CLOSED)
        .values_list("closed_at", flat=True)
        .first()
    )
    if closed_at is None:
        return None
    return Period(tenant_id=tenant_id, month=month, start=start, end=end, closed_at=closed_at)


def adjustments(tenant_id: uuid.UUID, month: date) -> list[Adjustment]:
    """What the month bills of earlier, closed ones. Final once the month itself is closed."""
    check_month(month)
    rows = UsageAdjustment.objects.filter(tenant_id=tenant_id, into_month=month).exclude(quantity=0)
    return [
        Adjustment(day=day, metric=metric, region_policy=policy, cell=cell, quantity=quantity)
        for day, metric, policy, cell, quantity in rows.order_by(
            "day", "metric", "region_policy", "cell"
        ).values_list("day", "metric", "region_policy", "cell", "quantity")
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """A month that cannot be closed yet, and what it waits for, in words."""

    waits_for: tuple[str, ...]


def open_month(month: date) -> int:
    """Begins the month of everybody who lived in it; how many lived in it."""
    residents_of: ResidentsOf = import_string(settings.BILLING_RESIDENTS)
    tenants = list(residents_of(*window(month)))
    with connection.cursor() as cursor:
        cursor.execute(_SQL["open"], {"tenants": tenants, "month": month})
    return len(tenants)


@transaction.atomic
def close(*, tenant_id: uuid.UUID, month: date, actor: str, without: str = "") -> Period | Waiting:
    """Closes a tenant's month for good, or says what it waits for. Again: the same period.

    It waits for earlier months, for every store that counted for the tenant in it to have sealed its
    end, and for records that are being added up. `without`: the reason why a person closes it without
    a cell that will never seal; it is kept as evidence with what was lacking, and what that cell may
    send one day becomes an adjustment. A month that no seal says to be over waits for its end.
    """
    start, end = window(month)
    of = {"tenant_id": tenant_id, "month": month}
    with connection.cursor() as cursor:
        cursor.execute(_SQL["lock_tenant"], of)
        if known := closed(tenant_id, month):
            return known
        if without or not watermarks.owners_of(tenant_id, start, end):
            cursor.execute(_SQL["is_over"], {"end": end})
            if cursor.fetchone() != (True,):
                return Waiting(waits_for=(f"{month:%Y-%m} is not over",))
        cursor.execute(_SQL["open"], {"tenants": [tenant_id], "month": month})
        recompute_range(tenant_id, month, next_month(month))
        cursor.execute(_SQL["state"], of)
        _, earlier, dirty = cursor.fetchone()
        owners = watermarks.owners_of(tenant_id, start, end)
        marks = watermarks.newest({o.cell for o in owners})
        lacking = watermarks.missing(owners, marks, end)
        reasons = [] if without else [_words(o, marks.get((o.cell, o.store))) for o in lacking]
        if earlier is not None:
            reasons.append(f"{earlier:%Y-%m} is not closed")
        if dirty:
            reasons.append("records are being added up")
        if reasons:
            cursor.execute(_SQL["wait"], {**of, "waits_for": json.dumps(reasons)})
            return Waiting(waits_for=tuple(reasons))
        evidence = {
            "actor": actor,
            "watermarks": [
                [m.cell, m.store, m.epoch, m.sealed_until and m.sealed_until.isoformat()]
                for _, m in sorted(marks.items())
            ],
        }
        if lacking:
            evidence |= {"without": [[o.cell, o.store] for o in lacking], "reason": without}
        if without:
            audit(
                action="period.close", subject=encode(TENANT, tenant_id), tenant_id=tenant_id,
                actor=Service(name=actor), reason=without,
                after={"month": f"{month:%Y-%m}", "without": evidence.get("without", [])},
            )  # fmt: skip
        cursor.execute(_SQL["close"], {**of, "evidence": json.dumps(evidence)})
        (closed_at,) = cursor.fetchone()
    return Period(tenant_id=tenant_id, month=month, start=start, end=end, closed_at=closed_at)


def _words(owner: watermarks.Owner, mark: watermarks.Watermark | None) -> str:
    store = owner.cell if owner.store == 0 else f"store {owner.store} of {owner.cell}"
    if mark is None or mark.sealed_until is None:
        return f"{store} has sealed nothing yet"
    return f"{store} has sealed up to {mark.sealed_until:%Y-%m-%dT%H:%MZ}"


def close_due(*, actor: str = "service:billing", page: int = 200) -> int:
    """Tries to close every month that some cell has sealed the end of; how many were closed. The month
    that cells are in is begun for everybody who lives in it."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["sealed_most"])
        (sealed,) = cursor.fetchone()
        if sealed is None:
            return 0
        open_month(month_of(sealed.astimezone(UTC).date()))
        done, place = 0, (date.min, uuid.UUID(int=0))
        while True:
            cursor.execute(_SQL["due"], {"month": place[0], "after": place[1], "limit": page})
            due = cursor.fetchall()
            for tenant_id, month in due:
                place = (month, tenant_id)
                with going_on("close a month", tenant_id=str(tenant_id), month=f"{month:%Y-%m}"):
                    done += isinstance(close(tenant_id=tenant_id, month=month, actor=actor), Period)
            if len(due) < page:
                return done
