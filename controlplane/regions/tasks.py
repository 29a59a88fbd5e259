"""Celery tasks of regions."""

from __future__ import annotations

import structlog
from celery import shared_task

from controlplane.ownership.installed import installed_store
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.regions.following import follow_owners

_LOG = structlog.get_logger(__name__)


@shared_task(name="controlplane.regions.tasks.follow_owners")
def follow() -> None:
    """Brings what is recorded of cells up to what the ownership store says."""
    try:
        follow_owners(installed_store())
    except OwnershipUnavailable as fault:
        _LOG.warning("owners not looked at", error=str(fault))
