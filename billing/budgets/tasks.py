"""Celery tasks of budgets."""

from __future__ import annotations

from datetime import UTC, datetime

from celery import shared_task

from billing.budgets.watching import watch_all


@shared_task(name="billing.budgets.tasks.watch_budgets")
def watch_budgets() -> int:
    """Looks at every budget; says how many thresholds were reached."""
    return watch_all(datetime.now(UTC))
