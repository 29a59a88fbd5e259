"""Usage told to Stripe's billing meters, as the difference between what is and what was told."""

from __future__ import annotations

import math
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

import stripe
import structlog
from django.db.models import F
from django.db.models.functions import Now

from billing.ids import TENANT, encode
from billing.months import month_of, window
from billing.periods import adjustments
from billing.pricing.statements import used_of
from billing.refusals import Refused
from billing.reports import tenants_with_usage
from billing.stripe.connecting import connect, is_duplicate_event
from billing.stripe.customers import ensure_customer
from billing.stripe.models import StripeCursor, StripeMeter

_LOG = structlog.get_logger(__name__)
_PAGE = 200
#: Stripe refuses values of more than 15 digits: a greater difference goes in several steps.
MOST_PER_EVENT = 10**15 - 1
#: Stripe takes events of the last 35 days.
_OLDEST = timedelta(days=34)
#: For so long Stripe surely knows an identifier again; behind that its sums are asked first.
_REMEMBERED = timedelta(hours=23)

Key = tuple[str, str]  # (metric, region policy)


def totals_of(tenant_id: uuid.UUID, month: date) -> dict[Key, int]:
    """What a month bills by metric and region policy: its own usage, and what came late for others."""
    start, end = window(month)
    totals: dict[Key, int] = defaultdict(int)
    for used in used_of(tenant_id, start.date(), end.date()):
        totals[used.metric, used.region_policy] += used.quantity
    for late in adjustments(tenant_id, month):
        totals[late.metric, late.region_policy] += late.quantity
    return dict(totals)


def send_usage(now: datetime, *, patience: float = math.inf) -> int:
    """Brings Stripe up to this month and the one before, while it takes events of that; says how many
    steps were told. Can stop anywhere and run again, and does after `patience` seconds, or where Stripe
    cannot be reached: the next run finds what was told and goes on from there."""
    client = connect()
    until = time.monotonic() + patience
    this = month_of(now.astimezone(UTC).date())
    before = month_of(this - timedelta(days=1))
    steps = 0
    for month in (before, this):
        start, end = window(month)
        if end <= now - _OLDEST:
            continue
        after: uuid.UUID | None = None
        while tenants := tenants_with_usage(start.date(), end.date(), after=after, limit=_PAGE):
            after = tenants[-1]
            for tenant_id in tenants:
                if time.monotonic() > until:
                    return steps
                try:
                    steps += _send_tenant(client, tenant_id, month, now)
                except stripe.APIConnectionError as error:
                    _LOG.warning("Stripe cannot be reached", error=str(error))
                    return steps
    return steps


def _send_tenant(client: stripe.StripeClient, tenant_id: uuid.UUID, month: date, now: datetime) -> int:
    try:
        return send_month(client, tenant_id, month, now)
    except stripe.APIConnectionError:
        raise  # everybody's matter
    except (stripe.StripeError, Refused) as error:
        # The next run goes on from what is written down; others are not kept waiting.
        _LOG.warning(
            "usage not told to Stripe", tenant_id=str(tenant_id), month=f"{month:%Y-%m}", error=str(error)
        )
        return 0


def send_month(client: stripe.StripeClient, tenant_id: uuid.UUID, month: date, now: datetime) -> int:
    """One tenant's month; raises what Stripe raises, everything written down."""
    totals = totals_of(tenant_id, month)
    cursors = _cursors(tenant_id, month, totals)
    behind = [c for c in cursors if c.pending is not None or totals[c.metric, c.region_policy] > c.sent]
    if not behind:
        return 0
    customer = ensure_customer(client, tenant_id)
    steps = 0
    for cursor in behind:
        while _plan(cursor, totals[cursor.metric, cursor.region_policy], now):
            _tell(client, customer, cursor, now)
            steps += 1
    return steps


def _cursors(tenant_id: uuid.UUID, month: date, totals: Mapping[Key, int]) -> list[StripeCursor]:
    StripeCursor.objects.bulk_create(
        [
            StripeCursor(tenant_id=tenant_id, month=month, metric=metric, region_policy=policy)
            for metric, policy in totals
        ],
        ignore_conflicts=True,
    )
    rows = StripeCursor.objects.filter(tenant_id=tenant_id, month=month).order_by("metric", "region_policy")
    return [row for row in rows if (row.metric, row.region_policy) in totals]


def _plan(cursor: StripeCursor, total: int, now: datetime) -> bool:
    """Writes the next step down, unless one is already; False: Stripe has everything."""
    if cursor.pending is not None:
        return True
    if total <= cursor.sent:
        return False
    _, end = window(cursor.month)
    pending = min(total, int(cursor.sent) + MOST_PER_EVENT)
    StripeCursor.objects.filter(pk=cursor.pk, steps=cursor.steps, pending=None).update(
        pending=pending,
        pending_at=min(now, end - timedelta(seconds=1)),
        pending_since=Now(),
    )
    # Another worker may have been first: its step is the step.
    cursor.refresh_from_db()
    return cursor.pending is not None or total > cursor.sent


def identifier_of(cursor: StripeCursor) -> str:
    """The same for the same step, whoever sends it how often; at most 100 characters."""
    return (
        f"{encode(TENANT, cursor.tenant_id)}-{cursor.month:%Y%m}"
        f"-{cursor.metric}-{cursor.region_policy}-{cursor.steps + 1}"
    )


def _tell(client: stripe.StripeClient, customer: str, cursor: StripeCursor, now: datetime) -> None:
    """Sends the step that is written down and moves on. An event that Stripe has already is told."""
    if cursor.pending is None or cursor.pending_at is None or cursor.pending_since is None:
        return
    meter = ensure_meter(client, cursor.metric, cursor.region_policy)
    try:
        forgotten = now - cursor.pending_since > _REMEMBERED
        if not forgotten or told_sum(client, customer, cursor) < cursor.pending:
            client.v1.billing.meter_events.create(
                {
                    "event_name": meter.event_name,
                    "identifier": identifier_of(cursor),
                    # A step that could not be told for weeks is still within the month, and not too old.
                    "timestamp": int(max(cursor.pending_at, now - _OLDEST).timestamp()),
                    "payload": {
                        "stripe_customer_id": customer,
                        "value": str(int(cursor.pending - cursor.sent)),
                    },
                }
            )
    except stripe.InvalidRequestError as error:
        if not is_duplicate_event(error):
            _note(cursor, error)
            raise
    except stripe.StripeError as error:
        _note(cursor, error)
        raise
    StripeCursor.objects.filter(pk=cursor.pk, steps=cursor.steps, pending=cursor.pending).update(
        sent=F("pending"), steps=F("steps") + 1, pending=None, pending_at=None, pending_since=None, error=""
    )
    cursor.refresh_from_db()


def _note(cursor: StripeCursor, error: stripe.StripeError) -> None:
    text = f"{type(error).__name__}: {error.user_message or error}"[:500]
    StripeCursor.objects.filter(pk=cursor.pk).update(error=text)


def told_sum(client: stripe.StripeClient, customer: str, cursor: StripeCursor) -> int:
    """What Stripe's meter says of the customer's month."""
    meter = ensure_meter(client, cursor.metric, cursor.region_policy)
    start, end = window(cursor.month)
    found = client.v1.billing.meters.event_summaries.list(
        meter.meter,
        {
            "customer": customer,
            "start_time": int(start.timestamp()),
            "end_time": int(end.timestamp()),
            "limit": 100,
        },
    )
    return sum(int(summary.aggregated_value) for summary in found.auto_paging_iter())


def ensure_meter(client: stripe.StripeClient, metric: str, region_policy: str) -> StripeMeter:
    """The meter of a metric under a region policy; made if Stripe has none of that event's name."""
    name = f"clockhouse_{metric}_{region_policy}".lower()
    row = StripeMeter.objects.filter(pk=name).first()
    if row is not None:
        return row
    there = client.v1.billing.meters.list({"limit": 100})
    found = next((m for m in there.auto_paging_iter() if m.event_name == name), None)
    if found is None:
        found = client.v1.billing.meters.create(
            {
                "event_name": name,
                "display_name": f"Clockhouse {metric.replace('_', ' ')} {region_policy}",
                "default_aggregation": {"formula": "sum"},
                "customer_mapping": {"type": "by_id", "event_payload_key": "stripe_customer_id"},
                "value_settings": {"event_payload_key": "value"},
            },
            {"idempotency_key": f"meter-{name}"},
        )
    row, _ = StripeMeter.objects.get_or_create(
        event_name=name,
        defaults={"metric": metric, "region_policy": region_policy, "meter": found.id},
    )
    return row
