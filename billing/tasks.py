"""Celery tasks of billing."""

from __future__ import annotations

from celery import shared_task

from billing.rollup import recompute_dirty


@shared_task(name="billing.tasks.recompute_dirty_days")
def recompute_dirty_days() -> int:
    """Adds up every day whose records changed."""
    total = 0
    while done := recompute_dirty():
        total += done
    return total
