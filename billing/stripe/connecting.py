"""The one place that makes a Stripe client, and says what its errors mean."""

from __future__ import annotations

import stripe
from django.conf import settings

from billing.refusals import Unavailable

#: Seconds for a request; what was not answered by then is asked again by the outbox or the next run.
TIMEOUT_SECONDS = 20


def is_connected() -> bool:
    """Whether there is a key. Without one nothing is sent, and everything else works."""
    return bool(settings.BILLING_STRIPE["key"])


def connect() -> stripe.StripeClient:
    """A client. Where `url` is set, every address of it is used: none may reach Stripe by accident.
    Requests are not repeated here: whoever sends decides, by what it has written down."""
    if not is_connected():
        raise Unavailable("there is no Stripe key: set CONTROL_STRIPE_KEY")
    url = settings.BILLING_STRIPE["url"]
    addresses = {"api": url, "files": url, "connect": url, "meter_events": url} if url else {}
    return stripe.StripeClient(
        settings.BILLING_STRIPE["key"],
        base_addresses=addresses,  # type: ignore[arg-type]
        http_client=stripe.new_default_http_client(timeout=TIMEOUT_SECONDS),
        max_network_retries=0,
    )


def is_duplicate_event(error: stripe.InvalidRequestError) -> bool:
    """Whether Stripe refused a meter event because it has one with that identifier: it is delivered."""
    return "already exists with identifier" in (error.user_message or str(error))
