"""What a webhook's receiver gets: CloudEvents 1.0 in JSON, signed as Standard Webhooks asks. Pure."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from controlplane.identity import TENANT, encode
from controlplane.notifications.models import NotificationEvent

#: Bytes of a secret; the standard asks for 24 to 64.
SECRET_BYTES = 32
SINGLE, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
_PREFIX = "whsec_"
_TYPE = "clockhouse."


def show_secret(raw: bytes) -> str:
    """A secret as its owner sees it, once."""
    return _PREFIX + base64.b64encode(raw).decode()


def cloud_event(event: NotificationEvent) -> dict[str, Any]:
    """The event. (`source`, `id`) is unique, and the same however often it is sent."""
    tenant = None if event.tenant_id is None else encode(TENANT, event.tenant_id)
    document: dict[str, Any] = {
        "specversion": "1.0",
        "id": event.event_id,
        "source": f"urn:clockhouse:tenant:{tenant}" if tenant else "urn:clockhouse:operators",
        "type": _TYPE + event.kind,
        "subject": event.subject,
        "time": _instant(event.at),
        "datacontenttype": "application/json",
        "origin": event.source,
    }
    if tenant:
        document["tenantid"] = tenant
    if event.actor:
        document["actor"] = event.actor
    return {**document, "data": event.data}


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def body_of(events: Sequence[NotificationEvent], *, digest: bool) -> tuple[bytes, str]:
    """The body and its media type: one event, or a digest's as a batch."""
    documents = [cloud_event(event) for event in events]
    return (msgspec.json.encode(documents), BATCH) if digest else (msgspec.json.encode(documents[0]), SINGLE)


def sign(secrets: Sequence[bytes], *, webhook_id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` header: one for each secret, newest first."""
    content = f"{webhook_id}.{timestamp}.".encode() + body
    return " ".join(
        "v1," + base64.b64encode(hmac.digest(secret, content, "sha256")).decode() for secret in secrets
    )


def headers_of(
    secrets: Sequence[bytes], *, webhook_id: str, timestamp: int, body: bytes, media_type: str
) -> Mapping[str, str]:
    """All headers of a message."""
    return {
        "Content-Type": media_type,
        "User-Agent": "Clockhouse",
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secrets, webhook_id=webhook_id, timestamp=timestamp, body=body),
    }
