"""big-month: a month of 5,000 tenants, 24 hours a day and 8 metrics (29 million hourly sums), is added up to
days and months and closed for everybody; every sum is the sum of what lies below it, adding up again
changes nothing, and what is closed refuses to change."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from cells.contract import Metric
from tests.stack import Stack

TENANTS = 5_000
METRICS = [metric.value for metric in Metric][:8]
MONTH = date(2024, 9, 1)
DAYS, HOURS = 30, 24
CELL, POLICY = "big-month-cell", "HOME_ASYNC"
#: Tenants of one COPY.
_TOGETHER = 50


def main(tenants: int = TENANTS) -> dict[str, Any]:
    with Stack(environment={"CLOCKHOUSE_DEMO_JOBS": "0"}) as stack:
        # Whatever else adds up or closes here would be measured with us.
        for name in [name for name in stack.info["processes"] if "celery" in name or "cell" in name]:
            stack.stop(name)
        _use_control_plane(stack)
        with psycopg.connect(stack.info["control_database_url"], autocommit=True) as connection:
            return _run(connection, sorted(uuid.uuid4() for _ in range(tenants)))


def _use_control_plane(stack: Stack) -> None:
    """Be a process of the control plane: its settings are those the supervisor gave it."""
    raw = Path(f"/proc/{stack.pid('django')}/environ").read_bytes().decode()
    os.environ.update(
        entry.split("=", 1) for entry in raw.split("\0") if entry.startswith(("CONTROL_", "DJANGO_"))
    )
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    import django

    django.setup()


def _run(connection: psycopg.Connection[Any], tenants: list[uuid.UUID]) -> dict[str, Any]:
    from billing import periods, rollup
    from billing.months import next_month
    from billing.watermarks import raise_watermarks

    times: dict[str, float] = {}
    began = time.monotonic()
    _generate(connection, tenants)
    times["generated"] = time.monotonic() - began
    _mark(connection)
    began = time.monotonic()
    days = rollup.recompute_dirty()
    times["rolled_up"] = time.monotonic() - began
    sums = _sums(connection)
    _mark(connection)
    rollup.recompute_dirty()
    again = _sums(connection)
    raise_watermarks(CELL, [(0, 1, f"{next_month(MONTH):%Y-%m-%dT01:00:00Z}")])
    began = time.monotonic()
    closed = periods.close_due()
    times["closed"] = time.monotonic() - began
    checks = {
        "sums_are_those_below": sums["hours"] == sums["days"] == sums["months"] == _wanted(len(tenants)),
        "again_changes_nothing": again == sums,
        "every_day_was_added_up": days >= len(tenants) * DAYS,  # the demo's own day may be among them
        "every_month_is_closed": closed == len(tenants),
        "closed_refuses_change": _refuses(connection, tenants[0]),
    }
    return {
        "holds": all(checks.values()),
        **checks,
        "tenants": len(tenants),
        "hourly_rows": len(tenants) * DAYS * HOURS * len(METRICS),
        **{f"{name}_seconds": round(seconds, 1) for name, seconds in times.items()},
    }


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
    for part in _parts(tenants):
        with connection.cursor().copy(
            "COPY billing_usage_hour (tenant_id, hour, metric, region_policy, cell, quantity, records)"
            " FROM STDIN"
        ) as copy:
            for tenant in part:
                copy.write(template.replace(b"@", str(tenant).encode()))
    connection.execute("ANALYZE billing_usage_hour")


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
