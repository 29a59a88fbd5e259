"""Celery tasks of the operators' pages."""

from __future__ import annotations

from celery import shared_task

from controlplane.operators.support import end_expired_visits


@shared_task(name="controlplane.operators.tasks.end_visits")
def end_visits() -> int:
    """Records the end of visits whose time is over."""
    return end_expired_visits()
