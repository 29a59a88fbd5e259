"""The API's requests about notification rules and their messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.client.decoding import Document
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.wire import Call, path, query, without_none


@dataclass(frozen=True, kw_only=True, slots=True)
class NotificationKind(Document):
    """Something a rule can ask for."""

    name: str
    group: str
    says: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NotificationKinds(Document):
    """All of them."""

    items: Sequence[NotificationKind] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NotificationRule(Document):
    """Who hears of what. `secret` is there only in the answer that made it."""

    rule_id: str
    name: str
    enabled: bool
    kinds: Sequence[str] = ()
    filters: Mapping[str, Any]
    channel: str  # WEBHOOK, EMAIL
    url: str
    emails: Sequence[str] = ()
    digest_minutes: int  # 0: each event at once
    failures: int  # in a row
    last_delivered_at: datetime | None
    last_error: str
    stopped_because: str  # why the control plane disabled it
    version: int
    secret: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NotificationTry(Document):
    """One try to deliver a message."""

    n: int
    at: datetime
    ms: int
    status: int | None
    error: str
    response: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NotifiedEvent(Document):
    """An event in a message."""

    event_id: str
    kind: str
    subject: str
    at: datetime
    says: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NotificationDelivery(Document):
    """A message. Events and tries are there when it is asked for by its id."""

    delivery_id: str
    rule_id: str
    state: str  # COLLECTING, WAITING, DELIVERED, DEAD
    test: bool
    kind: str
    events: int
    attempts: int
    created_at: datetime
    due_at: datetime
    delivered_at: datetime | None
    last_status: int | None
    last_error: str
    contents: Sequence[NotifiedEvent] = ()
    tries: Sequence[NotificationTry] = ()

    @property
    def over(self) -> bool:
        """Whether nothing more happens by itself."""
        return self.state in ("DELIVERED", "DEAD")


def list_kinds() -> Call[NotificationKinds]:
    """Everything that a rule can ask for."""
    return Call(method="GET", path="/v1/notification-kinds", read=reads(NotificationKinds))


def list_rules(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[NotificationRule]]:
    """Rules, the oldest first."""
    return Call(
        method="GET", path="/v1/notification-rules", read=reads_page(NotificationRule),
        query=query(limit=limit, cursor=cursor),
    )  # fmt: skip


def get_rule(rule_id: str) -> Call[NotificationRule]:
    """One rule."""
    return Call(
        method="GET", path=path("/v1/notification-rules/{id}", id=rule_id), read=reads(NotificationRule)
    )


def create_rule(
    name: str,
    kinds: Sequence[str],
    *,
    url: str | None = None,
    emails: Sequence[str] | None = None,
    filters: Mapping[str, Any] | None = None,
    digest_minutes: int | None = None,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[NotificationRule]:
    """Tell of those kinds from now on: to a webhook's `url`, or by mail to `emails` of members. `filters`:
    `name_prefix`, `tags`, `target_ids`. The secret of a webhook is in this answer only."""
    return Call(
        method="POST",
        path="/v1/notification-rules",
        read=reads(NotificationRule),
        body=without_none(
            name=name,
            kinds=list(kinds),
            channel="EMAIL" if emails else "WEBHOOK",
            url=url,
            emails=list(emails) if emails else None,
            filters=dict(filters) if filters else None,
            digest_minutes=digest_minutes,
            reason=reason,
        ),
        keyed=True,
        idempotency_key=idempotency_key,
    )


def edit_rule(rule_id: str, changes: Mapping[str, Any]) -> Call[NotificationRule]:
    """Change what is named, as the API calls it."""
    return Call(
        method="PATCH",
        path=path("/v1/notification-rules/{id}", id=rule_id),
        read=reads(NotificationRule),
        body=dict(changes),
    )


def remove_rule(rule_id: str) -> Call[None]:
    """No more of it, nor of its messages."""
    return Call(
        method="DELETE",
        path=path("/v1/notification-rules/{id}", id=rule_id),
        read=lambda answer: None,
    )


def rotate_secret(rule_id: str, *, overlap_seconds: int | None = None) -> Call[NotificationRule]:
    """A new secret; messages are signed with both until the overlap is over."""
    return Call(
        method="POST",
        path=path("/v1/notification-rules/{id}:rotate-secret", id=rule_id),
        read=reads(NotificationRule),
        body=without_none(overlap_seconds=overlap_seconds),
        keyed=True,
    )


def test_rule(rule_id: str) -> Call[NotificationDelivery]:
    """Send one event that says it is a test."""
    return Call(
        method="POST",
        path=path("/v1/notification-rules/{id}:test", id=rule_id),
        read=reads(NotificationDelivery),
        body={},
    )


def list_deliveries(
    *,
    rule_id: str | None = None,
    state: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[NotificationDelivery]]:
    """Messages, the newest first."""
    return Call(
        method="GET", path="/v1/notification-deliveries", read=reads_page(NotificationDelivery),
        query=query(rule_id=rule_id, state=state, limit=limit, cursor=cursor),
    )  # fmt: skip


def get_delivery(delivery_id: str) -> Call[NotificationDelivery]:
    """A message with its events and every try."""
    return Call(
        method="GET",
        path=path("/v1/notification-deliveries/{id}", id=delivery_id),
        read=reads(NotificationDelivery),
    )


def redeliver(delivery_id: str) -> Call[NotificationDelivery]:
    """Send a message again, with the same id and content."""
    return Call(
        method="POST",
        path=path("/v1/notification-deliveries/{id}:redeliver", id=delivery_id),
        read=reads(NotificationDelivery),
        body={},
    )
