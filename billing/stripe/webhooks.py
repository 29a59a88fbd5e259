"""What Stripe tells us: signed, taken once, and only believed where it fits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import stripe
import structlog
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from billing.hooks import Service, audit
from billing.invoices import settling
from billing.invoices.models import Invoice
from billing.refusals import Refused
from billing.stripe.comparing import INVOICE, METER_ERROR, differ
from billing.stripe.models import StripeEvent, StripeInvoice

_LOG = structlog.get_logger(__name__)
#: Seconds a signature stays good.
TOLERANCE = 300
_MOST_BYTES = 1024 * 1024
_STRIPE = Service(name="service:stripe", source="stripe webhook")


@csrf_exempt
@require_POST
def webhook(request: HttpRequest) -> JsonResponse:
    """Takes an event. 200 also for one that came before: Stripe sends until it hears that."""
    secret = settings.BILLING_STRIPE["webhook_secret"]
    if not secret:
        return _problem(404, "NOT_FOUND", "No webhook secret is set.")
    payload = request.body
    if len(payload) > _MOST_BYTES:
        return _problem(413, "PAYLOAD_TOO_LARGE", "Larger than any event.")
    try:
        text = payload.decode()
        stripe.WebhookSignature.verify_header(
            text, request.headers.get("Stripe-Signature", ""), secret, TOLERANCE
        )
        event = read_event(json.loads(text))
    except stripe.SignatureVerificationError:
        return _problem(400, "MALFORMED", "The signature does not fit.")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return _problem(400, "MALFORMED", "Not an event.")
    # What fails from here on is a fault of ours: it is logged, and Stripe sends the event again.
    return JsonResponse({"taken": take(event, now=datetime.now(UTC))})


def _problem(status: int, code: str, detail: str) -> JsonResponse:
    kind = code.lower().replace("_", "-")
    return JsonResponse(
        {
            "type": f"urn:clockhouse:problem:{kind}",
            "title": code.replace("_", " ").capitalize(),
            "status": status,
            "detail": detail,
            "code": code,
        },
        status=status,
        content_type="application/problem+json",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """What of an event counts here."""

    event_id: str
    kind: str
    created: datetime
    meter: str = ""  # of meter events that Stripe refused
    refused: str = ""  # how many
    invoice: str = ""  # Stripe's id
    status: str = ""


def read_event(event: dict[str, Any]) -> Event:
    """An event as Stripe writes it. Raises what reading a document of another form raises."""
    created = event["created"]
    at = (
        datetime.fromtimestamp(created, UTC)
        if isinstance(created, int)
        else datetime.fromisoformat(str(created))
    )
    kind = str(event["type"])
    read = partial(Event, event_id=str(event["id"]), kind=kind[:120], created=at)
    if kind.startswith("v1.billing.meter."):
        reason = (event.get("data") or {}).get("reason") or {}
        return read(
            meter=str((event.get("related_object") or {}).get("id", "meter")),
            refused=str(reason.get("error_count", "some")),
        )
    if kind.startswith("invoice."):
        there = event["data"]["object"]
        return read(invoice=str(there["id"]), status=str(there.get("status") or ""))
    return read()


@transaction.atomic
def take(event: Event, *, now: datetime) -> bool:
    """Does what an event says, once, in the transaction that notes it; False: it was here before."""
    row, fresh = StripeEvent.objects.get_or_create(
        event_id=event.event_id, defaults={"kind": event.kind, "created": event.created}
    )
    if not fresh:
        return False
    row.outcome = _act(event, now)
    row.save(update_fields=["outcome"])
    return True


def _act(event: Event, now: datetime) -> str:
    if event.meter:
        differ(kind=METER_ERROR, subject=event.meter, tenant_id=None, ours="0", theirs=event.refused)
        _LOG.error("Stripe refused meter events", meter=event.meter, count=event.refused)
        return "noted"
    if not event.invoice:
        return "nothing to do"
    found = StripeInvoice.objects.select_related("invoice").filter(stripe_id=event.invoice).first()
    if found is None:
        return "not an invoice of ours"
    StripeInvoice.objects.filter(pk=found.pk).update(state=event.status or found.state)
    match event.kind:
        case "invoice.paid":
            return _paid(found.invoice, now, event.event_id)
        case "invoice.payment_failed":
            audit(
                action="invoice.payment_failed", subject=found.invoice.public_id,
                tenant_id=found.invoice.tenant_id, actor=_STRIPE, reason=event.event_id,
            )  # fmt: skip
            return "noted"
        case "invoice.voided" | "invoice.marked_uncollectible":
            # Ours decides; where it says otherwise a person looks.
            state = found.invoice.state
            wanted = {"invoice.voided": "VOID", "invoice.marked_uncollectible": "UNCOLLECTIBLE"}[event.kind]
            differ(
                kind=INVOICE, subject=found.invoice.number, tenant_id=found.invoice.tenant_id,
                ours=state, theirs=wanted,
            )  # fmt: skip
            return "compared"
        case _:
            return "nothing to do"


def _paid(invoice: Invoice, now: datetime, event_id: str) -> str:
    try:
        settling.pay(invoice_id=invoice.id, now=now, actor=_STRIPE, reason=f"Stripe event {event_id}")
    except Refused as refused:
        _LOG.error("paid at Stripe, not here", invoice=invoice.number, error=str(refused))
        differ(
            kind=INVOICE, subject=invoice.number, tenant_id=invoice.tenant_id,
            ours=invoice.state, theirs="PAID",
        )  # fmt: skip
        return f"refused: {refused}"
    return "paid"
