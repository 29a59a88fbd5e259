"""Celery tasks about tenants."""

from __future__ import annotations

import structlog
from celery import shared_task

from controlplane.workspace import migrator, pool

_LOG = structlog.get_logger(__name__)


@shared_task(name="controlplane.tenants.tasks.top_up_pool")
def top_up_pool() -> int:
    """Keeps a few workspace schemas ready, and brings stragglers to the newest version."""
    report = migrator.migrate_all()
    if report.failed:
        _LOG.error("workspace schemas not migrated", schemas=list(report.failed)[:20])
    return pool.top_up()
