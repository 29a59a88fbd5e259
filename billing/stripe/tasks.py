"""Celery tasks of Stripe. Without a key they do nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import structlog
from celery import shared_task

from billing.months import month_of
from billing.running import slow_alone
from billing.stripe.comparing import compare_month
from billing.stripe.connecting import is_connected
from billing.stripe.metering import send_usage

_LOG = structlog.get_logger(__name__)
#: Seconds that a run tells usage; the next one goes on.
_PATIENCE = 240
#: Seconds until a comparison that found another slow task at work is tried again.
_AGAIN = 120


@shared_task(name="billing.stripe.tasks.tell_usage")
def tell_usage() -> int:
    """Tells Stripe what was used since the last time; says how many steps."""
    if not is_connected():
        return 0
    with slow_alone() as mine:
        return send_usage(datetime.now(UTC), patience=_PATIENCE) if mine else 0


@shared_task(name="billing.stripe.tasks.compare")
def compare() -> int:
    """Compares this month and the one before; says how many differences there are."""
    if not is_connected():
        return 0
    this = month_of(datetime.now(UTC).date())
    with slow_alone() as mine:
        if not mine:
            compare.apply_async(countdown=_AGAIN)  # it is rare: its turn is not left out
            return 0
        found = sum(compare_month(month) for month in (month_of(this - timedelta(days=1)), this))
    if found:
        _LOG.error("Stripe's sums differ from ours", differences=found)
    return found
