"""Celery tasks of Stripe. Without a key they do nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import structlog
from celery import shared_task

from billing.months import month_of
from billing.stripe.comparing import compare_month
from billing.stripe.connecting import is_connected
from billing.stripe.metering import send_usage

_LOG = structlog.get_logger(__name__)


@shared_task(name="billing.stripe.tasks.tell_usage")
def tell_usage() -> int:
    """Tells Stripe what was used since the last time; says how many steps."""
    return send_usage(datetime.now(UTC)) if is_connected() else 0


@shared_task(name="billing.stripe.tasks.compare")
def compare() -> int:
    """Compares this month and the one before; says how many differences there are."""
    if not is_connected():
        return 0
    this = month_of(datetime.now(UTC).date())
    found = sum(compare_month(month) for month in (month_of(this - timedelta(days=1)), this))
    if found:
        _LOG.error("Stripe's sums differ from ours", differences=found)
    return found
