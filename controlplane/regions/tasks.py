"""Celery tasks of regions."""

from __future__ import annotations

import structlog
from celery import shared_task

from controlplane.events.running import one_of
from controlplane.ownership.installed import installed_store
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.regions.following import follow_owners

_LOG = structlog.get_logger(__name__)
_SPACE = 0x464F4C4C  # of the one that follows


@shared_task(name="controlplane.regions.tasks.follow_owners")
def follow() -> None:
    """Brings what is recorded of cells up to what the ownership store says, unless another does."""
    try:
        with one_of(_SPACE) as mine:
            if mine:
                follow_owners(installed_store())
    except OwnershipUnavailable as fault:
        _LOG.warning("owners not looked at", error=str(fault))
