"""Billing periods: a tenant's UTC months, which close for good once every cell has sealed them.

The month is always an argument. What cells sealed says that it is over; only where nobody waits for
cells, the database's clock must say so.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Self

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
from billing.watermarks import Store

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
    end, for every router to have shipped what it counted before, and for records that are being added up.
    `without`: the reason why a person closes it without those that will never seal; it is kept as evidence
    with what was lacking, and what they may send one day becomes an adjustment. A month that no seal says
    to be over waits for its end.
    """
    start, end = window(month)
    of = {"tenant_id": tenant_id, "month": month}
    with connection.cursor() as cursor:
        cursor.execute(_SQL["lock_tenant"], of)
        if known := closed(tenant_id, month):
            return known
        stores = watermarks.stores_of([tenant_id], start, end).get(tenant_id, ())
        if without or not stores:
            cursor.execute(_SQL["is_over"], {"end": end})
            if cursor.fetchone() != (True,):
                return Waiting(waits_for=(f"{month:%Y-%m} is not over",))
        cursor.execute(_SQL["open"], {"tenants": [tenant_id], "month": month})
        recompute_range(tenant_id, month, next_month(month))
        cursor.execute(_SQL["state"], of)
        _, earlier, dirty = cursor.fetchone()
        seen = _Seen.of({cell for cell, _ in stores}, end)
        lacking = watermarks.missing(stores, seen.marks, end)
        reasons = [] if without else seen.reasons(stores, end)
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
                for _, m in sorted(seen.marks.items())
            ],
        }
        if lacking or (without and seen.routers):
            evidence |= {
                "without": [[cell, store] for cell, store in lacking],
                "without_routers": [host for host, _ in seen.routers],
                "reason": without,
            }
        if without:
            audit(
                action="period.close", subject=encode(TENANT, tenant_id), tenant_id=tenant_id,
                actor=Service(name=actor), reason=without,
                after={"month": f"{month:%Y-%m}", "without": evidence.get("without", [])},
            )  # fmt: skip
        cursor.execute(_SQL["close"], {**of, "evidence": json.dumps(evidence)})
        (closed_at,) = cursor.fetchone()
    return Period(tenant_id=tenant_id, month=month, start=start, end=end, closed_at=closed_at)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """How far whoever counted has sealed, when a month is to be closed."""

    marks: Mapping[Store, watermarks.Watermark]
    routers: Sequence[tuple[str, datetime]]  # those that have not sealed the month

    @classmethod
    def of(cls, cells: Collection[str], end: datetime) -> Self:
        return cls(marks=watermarks.newest(cells), routers=watermarks.silent_incarnations(end))

    def reasons(self, stores: Collection[Store], end: datetime) -> list[str]:
        """What a month that these stores counted in waits for, in words."""
        found = watermarks.words(watermarks.missing(stores, self.marks, end), self.marks)
        if self.routers:
            host, until = self.routers[0]
            others = f" and {len(self.routers) - 1} more routers" if len(self.routers) > 1 else ""
            found.append(f"{host}{others} have counted up to {until:%Y-%m-%dT%H:%MZ} only")
        return found


def close_due(*, actor: str = "service:billing", page: int = 200) -> int:
    """Tries to close every month that some cell has sealed the end of; how many were closed. The month
    that cells are in is begun for everybody who lives in it."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["forget_incarnations"])
        cursor.execute(_SQL["sealed_most"])
        (sealed,) = cursor.fetchone()
        if sealed is None:
            return 0
        open_month(month_of(sealed.astimezone(UTC).date()))
        done, place = 0, (date.min, uuid.UUID(int=0))
        while True:
            cursor.execute(_SQL["due"], {"month": place[0], "after": place[1], "limit": page})
            due = cursor.fetchall()
            for month, rows in itertools.groupby(due, key=lambda row: row[1]):
                tenants = [tenant_id for tenant_id, _ in rows]
                place = (month, tenants[-1])
                for tenant_id in _ready(tenants, month):
                    with going_on("close a month", tenant_id=str(tenant_id), month=f"{month:%Y-%m}"):
                        done += isinstance(close(tenant_id=tenant_id, month=month, actor=actor), Period)
            if len(due) < page:
                return done


def _ready(tenants: Sequence[uuid.UUID], month: date) -> list[uuid.UUID]:
    """Those whose month may be closed now. Of the others it is kept what they wait for, in a handful of
    statements for all of them: a cell that is away for days has thousands, who are looked at each minute."""
    start, end = window(month)
    stores = watermarks.stores_of(tenants, start, end)
    seen = _Seen.of({cell for found in stores.values() for cell, _ in found}, end)
    waiting: dict[uuid.UUID, list[str]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_SQL["first_open"], {"tenants": list(tenants)})
        first = dict(cursor.fetchall())
        for tenant_id in tenants:
            reasons = seen.reasons(stores.get(tenant_id, ()), end)
            if first.get(tenant_id, month) < month:
                reasons.append(f"{first[tenant_id]:%Y-%m} is not closed")
            if reasons:
                waiting[tenant_id] = reasons
        if waiting:
            cursor.execute(
                _SQL["wait_many"],
                {
                    "month": month,
                    "tenants": list(waiting),
                    "waits": [json.dumps(reasons) for reasons in waiting.values()],
                },
            )
    return [tenant_id for tenant_id in tenants if tenant_id not in waiting]
