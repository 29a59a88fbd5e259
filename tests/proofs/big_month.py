"""big-month: a month of 5,000 tenants, 24 hours a day and 8 metrics (29 million hourly sums), is added up to
days and months, closed, rated and invoiced for everybody. Every sum is the sum of what lies below it, adding
up again changes nothing, what is closed refuses to change, invoices ask for what was rated, without gaps."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg

from cells.contract import Metric
from tests.as_control_plane import stop_all_but_the_control_plane, use_control_plane
from tests.stack import Stack

TENANTS = 5_000
METRICS = [metric.value for metric in Metric][:8]
MONTH = date(2026, 9, 1)
DAYS, HOURS = 30, 24
CELL, POLICY = "big-month-cell", "HOME_ASYNC"
#: Tenants of one COPY.
_TOGETHER = 50


def main(tenants: int = TENANTS) -> dict[str, Any]:
    with Stack(environment={"CLOCKHOUSE_DEMO_JOBS": "0"}) as stack:
        # Whatever else adds up or closes here would be measured with us.
        stop_all_but_the_control_plane(stack)
        use_control_plane(stack)
        with psycopg.connect(stack.info["control_database_url"], autocommit=True) as connection:
            return _run(connection, sorted(uuid.uuid4() for _ in range(tenants)))


class _Times(dict[str, float]):
    """Seconds that parts of the proof took."""

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self[f"{name}_seconds"] = round(time.monotonic() - began, 1)


def _run(connection: psycopg.Connection[Any], tenants: list[uuid.UUID]) -> dict[str, Any]:
    from billing import periods, rollup
    from billing.invoices.models import Invoice
    from billing.invoices.tasks import draft_closed, finalize_drafts
    from billing.months import next_month
    from billing.pricing import many
    from billing.watermarks import raise_watermarks

    times, now = _Times(), datetime.now(UTC)
    with times.of("generated"):
        _sign_up(tenants)
        _generate(connection, tenants)
    _mark(connection)
    with times.of("rolled_up"):
        days = rollup.recompute_dirty()
    sums = _sums(connection)
    _mark(connection)
    with times.of("rolled_up_again"):
        rollup.recompute_dirty()
    again = _sums(connection)
    raise_watermarks(CELL, [(0, 1, f"{next_month(MONTH):%Y-%m-%dT01:00:00Z}")])
    with times.of("closed"):
        closed = periods.close_due()
    with times.of("rated"):
        rated = [each.statement.total for each in many.rated(tenants, MONTH)]
    with times.of("drafted"):
        draft_closed(now - timedelta(days=1))
    with times.of("finalised"):
        finalize_drafts(now + timedelta(days=10))
    invoices = list(
        Invoice.objects.order_by("sequence").values_list("tenant_id", "sequence", "total", "state")
    )
    checks = {
        "sums_are_those_below": sums["hours"] == sums["days"] == sums["months"] == _wanted(len(tenants)),
        "again_changes_nothing": again == sums,
        "every_day_was_added_up": days >= len(tenants) * DAYS,  # the demo's own day may be among them
        "every_month_is_closed": closed == len(tenants),
        "closed_refuses_change": _refuses(connection, tenants[0]),
        "invoices_ask_for_what_was_rated": rated[0] > 0
        and sorted((tenant, total) for tenant, _, total, _ in invoices)
        == list(zip(tenants, rated, strict=True)),
        "numbers_have_no_gaps": [sequence for _, sequence, _, _ in invoices]
        == list(range(1, len(tenants) + 1)),
        "all_are_final": {state for *_, state in invoices} == {"FINAL"},
    }
    return {
        "holds": all(checks.values()),
        **checks,
        "tenants": len(tenants),
        "hourly_rows": len(tenants) * DAYS * HOURS * len(METRICS),
        "invoiced": str(sum(rated, Decimal(0))),
        **times,
    }


def _sign_up(tenants: list[uuid.UUID]) -> None:
    """Tenants as billing asks for them: whoever has a name can be billed."""
    from controlplane.tenants.models import Tenant
    from controlplane.topology.models import Region

    region = Region.objects.order_by("pk").first()
    Tenant.objects.bulk_create(
        (
            Tenant(
                id=tenant, slug=f"big-{n}", schema_name=f"big_month_{n}", name=f"Big {n}", home_region=region
            )
            for n, tenant in enumerate(tenants)
        ),
        batch_size=500,
    )


def _quantity(hour: int, metric: int) -> int:
    return (hour * 31 + metric * 7) % 1009 + 1


def _wanted(tenants: int) -> int:
    one = sum(_quantity(hour, metric) for hour in range(DAYS * HOURS) for metric in range(len(METRICS)))
    return tenants * one


def _template() -> bytes:
    """A tenant's month as COPY reads it, in the order of the key; `@` stands for the tenant."""
    start = datetime(MONTH.year, MONTH.month, MONTH.day, tzinfo=UTC)
    return "".join(
        f"@\t{start + timedelta(hours=hour):%Y-%m-%d %H:%M:%S+00}\t{name}\t{POLICY}\t{CELL}"
        f"\t{_quantity(hour, METRICS.index(name))}\t60\n"
        for hour in range(DAYS * HOURS)
        for name in sorted(METRICS)
    ).encode()


def _parts(tenants: list[uuid.UUID]) -> Iterator[list[uuid.UUID]]:
    for at in range(0, len(tenants), _TOGETHER):
        yield tenants[at : at + _TOGETHER]


def _generate(connection: psycopg.Connection[Any], tenants: list[uuid.UUID]) -> None:
    template = _template()
    # What is given is no act of the product: nobody checks millions of rows for months that are closed.
    connection.execute("ALTER TABLE billing_usage_hour DISABLE TRIGGER USER")
    for part in _parts(tenants):
        with connection.cursor().copy(
            "COPY billing_usage_hour (tenant_id, hour, metric, region_policy, cell, quantity, records)"
            " FROM STDIN"
        ) as copy:
            for tenant in part:
                copy.write(template.replace(b"@", str(tenant).encode()))
    connection.execute("ALTER TABLE billing_usage_hour ENABLE TRIGGER USER")
    connection.execute("VACUUM (ANALYZE) billing_usage_hour")


def _mark(connection: psycopg.Connection[Any]) -> None:
    """Every day is to be added up from its hours, which are given."""
    connection.execute(
        "INSERT INTO billing_dirty_day (tenant_id, day, marks, hours)"
        " SELECT tenant_id, %(month)s::date + n, 1, 0"
        " FROM (SELECT DISTINCT tenant_id FROM billing_usage_hour"
        "       WHERE cell = %(cell)s AND hour = %(month)s::timestamp AT TIME ZONE 'UTC') t,"
        " generate_series(0, %(days)s - 1) n",
        {"cell": CELL, "month": MONTH, "days": DAYS},
    )


def _sums(connection: psycopg.Connection[Any]) -> dict[str, int]:
    found = {}
    for name, table in (
        ("hours", "billing_usage_hour"), ("days", "billing_usage_day"), ("months", "billing_usage_month"),
    ):  # fmt: skip
        row = connection.execute(
            f"SELECT coalesce(sum(quantity), 0)::bigint FROM {table} WHERE cell = %s",  # noqa: S608
            [CELL],
        ).fetchone()
        found[name] = int(row[0]) if row else 0
    return found


def _refuses(connection: psycopg.Connection[Any], tenant: uuid.UUID) -> bool:
    for table in ("billing_usage_hour", "billing_usage_day", "billing_usage_month"):
        try:
            connection.execute(
                f"UPDATE {table} SET quantity = quantity + 1 WHERE tenant_id = %s",  # noqa: S608
                [tenant],
            )
        except psycopg.errors.RestrictViolation:
            continue
        return False
    return True
