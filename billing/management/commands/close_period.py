"""`manage.py close_period`: closes a tenant's month, if need be without a cell that will never seal it."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import date
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing.months import next_month
from billing.periods import Waiting, close
from cells.domain.ids import TENANT, decode


class Command(BaseCommand):
    help = (
        "Close a tenant's month for good, or say what it waits for. With --without, close it though some cell"
        " has not sealed it: what that cell may send one day becomes an adjustment of the next month."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant_id", help="tnt_…")
        parser.add_argument("month", help="YYYY-MM")
        parser.add_argument("--actor", required=True, help="who closes it, for the record")
        parser.add_argument("--without", default="", metavar="REASON", help="why not to wait for cells")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant_id = decode(TENANT, options["tenant_id"])
        if tenant_id is None:
            raise CommandError(f"{options['tenant_id']} is no tenant's id")
        try:
            month = date.fromisoformat(f"{options['month']}-01")
            next_month(month)
        except (ValueError, OverflowError) as e:
            raise CommandError(f"{options['month']} is no month: YYYY-MM") from e
        found = close(tenant_id=tenant_id, month=month, actor=options["actor"], without=options["without"])
        if isinstance(found, Waiting):
            raise CommandError("it waits: " + "; ".join(found.waits_for))
        self.stdout.write(f"{month:%Y-%m} is closed since {found.closed_at:%Y-%m-%dT%H:%M:%SZ}")
