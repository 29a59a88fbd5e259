"""Sends messages that are due, each under a lease, and writes down what came of every try.

A process that ends between sending and writing leaves the lease to lapse: the message is sent again, with the
same id and the same content. So a receiver gets each at least once, and knows repetitions by `webhook-id`.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import structlog
from django.conf import settings
from django.db import DatabaseError, OperationalError, connection, transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.events.running import one_of
from controlplane.notifications import mails
from controlplane.notifications.backoff import HOLDS, pause_after
from controlplane.notifications.digests import gather
from controlplane.notifications.envelope import body_of, headers_of
from controlplane.notifications.models import Channel, Delivery, DeliveryAttempt, NotificationRule
from controlplane.notifications.rules import open_secrets, stop_rule
from controlplane.notifications.webhooks import Outcome, post
from controlplane.sql import named_sql

_SQL = named_sql(Path(__file__).parent / "sql" / "notifications.sql")
_LOG = structlog.get_logger(__name__)
#: Messages of one rule under way at once, of one tenant (or one of the operators' rules), and of one process.
EACH, TOGETHER, WORKERS = 2, 4, 24
#: How long one call goes on taking messages, and how many processes do so at once.
DRAIN_SECONDS, SENDERS = 20.0, 2
#: How often new messages are looked for meanwhile, and what a try may take beyond its patience (seconds).
_LOOK, _GRACE = 1.0, 5.0
_SPACE = 0x4E4F5449  # of the advisory locks
_UNKNOWN = "whoever sent it ended before it knew the answer"


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A message under our lease, ready to be sent by whoever has no database."""

    delivery: Delivery
    lease: uuid.UUID
    send: Callable[[], Outcome]


def lease_seconds() -> int:
    """How long whoever sends a message may be silent until another does it."""
    return int(settings.NOTIFICATIONS["lease_seconds"])


def take(limit: int) -> list[Message]:
    """Messages that are due, under a lease of ours."""
    lease = uuid.uuid4()
    with connection.cursor() as cursor:
        cursor.execute(
            _SQL["take"],
            {
                "lease": lease,
                "limit": limit,
                "each": EACH,
                "together": TOGETHER,
                "seconds": lease_seconds(),
            },
        )
        ids = [row[0] for row in cursor.fetchall()]
    found = Delivery.objects.select_related("rule__tenant").filter(pk__in=ids, lease=lease).order_by("id")
    return [message for message in (_prepared(delivery, lease) for delivery in found) if message is not None]


def _prepared(delivery: Delivery, lease: uuid.UUID) -> Message | None:
    """One that cannot be prepared counts as a try that failed, and holds up no others."""
    try:
        with transaction.atomic():
            return Message(delivery=delivery, lease=lease, send=_sender(delivery))
    except OperationalError:
        raise  # the database is away: nothing is known of the message
    except Exception as fault:  # noqa: BLE001 - whatever is wrong with it, the others are sent
        _LOG.exception("a notification could not be prepared", delivery=str(delivery))
        said = f"it could not be prepared: {type(fault).__name__}: {fault}"[:300]
        _note(delivery, lease, Outcome(ms=0, error=said))
        return None


def _sender(delivery: Delivery) -> Callable[[], Outcome]:
    """All that is read from the database is read here."""
    _note_unknown(delivery)
    rule = delivery.rule
    events = [
        content.event
        for content in delivery.contents.select_related("event").order_by("event__at", "event_id")
    ]
    if not events:
        return lambda: Outcome(ms=0, error="what was in it is kept no more", for_good=True)
    if rule.channel == Channel.EMAIL:
        return mails.sender_of(delivery, events)
    body, media_type = body_of(events, digest=delivery.digest or len(events) > 1)
    secrets, webhook_id, allow = (
        open_secrets(rule),
        delivery.public_id,
        settings.NOTIFICATIONS["egress_allow"],
    )
    patience = float(settings.NOTIFICATIONS["patience_seconds"])

    def send() -> Outcome:
        headers = headers_of(
            secrets, webhook_id=webhook_id, timestamp=int(time.time()), body=body, media_type=media_type
        )
        return post(rule.url, headers, body, allow=allow, patience=patience)

    return send


def _note_unknown(delivery: Delivery) -> None:
    """The try before this one has no end that anybody wrote down."""
    before = delivery.attempts - 1
    if before and not delivery.tries.filter(n=before).exists():
        DeliveryAttempt.objects.create(delivery=delivery, n=before, ms=0, error=_UNKNOWN)


def note(message: Message, outcome: Outcome) -> None:
    """Writes down what came of a try. Whoever took the message over meanwhile decides about it."""
    _note(message.delivery, message.lease, outcome)


@transaction.atomic
def _note(delivery: Delivery, lease: uuid.UUID, outcome: Outcome) -> None:
    rule = delivery.rule
    # The rule first, as whoever removes it does; with it, its messages are gone.
    if not NotificationRule.objects.select_for_update(no_key=True).filter(pk=rule.id):
        return
    if not Delivery.objects.filter(pk=delivery.id).exists():
        return
    DeliveryAttempt.objects.create(
        delivery=delivery, n=delivery.attempts, ms=outcome.ms, status=outcome.status,
        error=outcome.error, response=outcome.response,
    )  # fmt: skip
    mine: Mapping[str, object] = {"id": delivery.id, "lease": lease, "status": outcome.status}
    with connection.cursor() as cursor:
        if not outcome.error:
            cursor.execute(_SQL["delivered"], mine)
            if cursor.fetchone() is not None:
                cursor.execute(_SQL["receiver_answers"], {"rule": rule.id})
            return
        delay = pause_after(delivery.attempts, draw=random.random(), asked=outcome.retry_after)
        cursor.execute(
            _SQL["failed"],
            {**mine, "error": outcome.error[:1000], "delay": delay, "for_good": outcome.for_good},
        )
        row = cursor.fetchone()
        if row is None or delivery.test:
            return
        cursor.execute(
            _SQL["receiver_fails"],
            {"rule": rule.id, "error": outcome.error[:1000], "holds": list(HOLDS), "longest": len(HOLDS)},
        )
    if outcome.gone:
        said = "its receiver answered 410 Gone" if outcome.status else outcome.error
        stop_rule(rule.id, because=said)
    elif row[0] == "DEAD" and _nothing_since(rule, delivery):
        stop_rule(rule.id, because=f"nothing could be delivered for a day: {outcome.error}")


def _nothing_since(rule: NotificationRule, delivery: Delivery) -> bool:
    last = NotificationRule.objects.values_list("last_delivered_at", flat=True).get(pk=rule.pk)
    return delivery.attempts > 1 and (last is None or last < delivery.created_at)


def drain(seconds: float = DRAIN_SECONDS) -> int:
    """Sends what is due for so long at most; how many tries that were. Few processes do so at once."""
    with one_of(_SPACE, SENDERS) as ours:
        return _drain(seconds) if ours else 0


def _drain(seconds: float) -> int:
    gather()
    until, tries = time.monotonic() + seconds, 0
    last = until + float(settings.NOTIFICATIONS["patience_seconds"]) + _GRACE
    under_way: dict[Future[Outcome], Message] = {}
    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="notify")
    try:
        while True:
            if time.monotonic() < until and len(under_way) < WORKERS:
                for message in take(WORKERS - len(under_way)):
                    under_way[pool.submit(message.send)] = message
            if not under_way:
                return tries
            done, _ = wait(under_way, timeout=_LOOK, return_when=FIRST_COMPLETED)
            for future in done:
                tries += 1
                _noted(under_way.pop(future), future)
            if time.monotonic() > last and under_way:
                _LOG.error(
                    "notifications left behind", deliveries=[str(m.delivery) for m in under_way.values()]
                )
                return tries
    finally:
        # Nobody waits for those that never end: their leases lapse.
        pool.shutdown(wait=False, cancel_futures=True)


def _noted(message: Message, future: Future[Outcome]) -> None:
    """What cannot be written down is sent again once its lease has lapsed, and holds up no others."""
    fault = future.exception()
    if fault is not None:
        _LOG.error("a notification could not be sent", delivery=str(message.delivery), exc_info=fault)
        outcome = Outcome(ms=0, error=f"{type(fault).__name__}: {fault}"[:300])
    else:
        outcome = future.result()
    try:
        note(message, outcome)
    except DatabaseError:
        _LOG.exception("what came of a notification is not written down", delivery=str(message.delivery))


def waiting() -> dict[str, float]:
    """What is still to be sent, for metrics: messages, those tried already, the age of the oldest."""
    sent = Q(test=True) | Q(rule__enabled=True)
    due = Delivery.objects.filter(sent, state="WAITING").order_by("created_at")
    first = due.values_list("created_at", flat=True).first()
    return {
        "waiting": due.count(),
        "failing": due.filter(attempts__gt=1).count(),
        "oldest_seconds": 0.0 if first is None else max(0.0, (timezone.now() - first).total_seconds()),
    }
