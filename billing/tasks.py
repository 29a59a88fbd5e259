"""Celery tasks of billing."""

from __future__ import annotations

from celery import shared_task

from billing.drift import check_all
from billing.periods import close_due
from billing.rollup import recompute_dirty
from billing.running import slow_alone


@shared_task(name="billing.tasks.recompute_dirty_days")
def recompute_dirty_days() -> int:
    """Adds up every day whose records changed."""
    return recompute_dirty()


@shared_task(name="billing.tasks.close_periods")
def close_periods() -> int:
    """Closes every month that all its cells have sealed; how many."""
    return close_due()


@shared_task(name="billing.tasks.check_usage")
def check_usage() -> int:
    """Holds the ledger against the cells' runs; how many differences there are."""
    with slow_alone() as mine:
        return check_all() if mine else 0
