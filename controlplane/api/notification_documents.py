"""What the API takes and shows of notification rules and their messages."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from controlplane.api.base import ReasonMixin, Strict, Text
from controlplane.api.documents import Document
from controlplane.api.forms import TrueOrFalse, WholeNumber
from controlplane.notifications.kinds import Kind
from controlplane.notifications.models import Channel, Delivery, DeliveryAttempt, NotificationRule
from controlplane.notifications.wording import sentence

_CHANNELS = [c.value for c in Channel]


class FiltersForm(Strict):
    """What events must be about. All that are given must hold."""

    name_prefix = Text(required=False, allow_blank=True, max_length=200)
    tags = serializers.ListField(child=Text(max_length=200), required=False)
    target_ids = serializers.ListField(child=Text(max_length=200), required=False)
    tenant_ids = serializers.ListField(child=Text(max_length=200), required=False)


class EditNotificationRule(ReasonMixin):
    """A JSON merge patch; lists and filters are replaced as a whole."""

    name = Text(required=False, allow_blank=True, max_length=200)
    kinds = serializers.ListField(child=Text(max_length=60), required=False, max_length=100)
    filters = FiltersForm(required=False)
    channel = serializers.ChoiceField(_CHANNELS, required=False)
    url = Text(required=False, allow_blank=True, max_length=2000)
    emails = serializers.ListField(child=Text(max_length=254), required=False, max_length=100)
    digest_minutes = WholeNumber(required=False)
    enabled = TrueOrFalse(required=False)


class NewNotificationRule(ReasonMixin):
    """`kinds`: names of `GET /v1/notification-kinds`, or `*`. WEBHOOK needs `url`, EMAIL `emails`."""

    name = Text(allow_blank=True, max_length=200)  # refused with all other faults at once
    kinds = serializers.ListField(child=Text(max_length=60), max_length=100)
    filters = FiltersForm(required=False, default=dict)
    channel = serializers.ChoiceField(_CHANNELS)
    url = Text(required=False, default="", allow_blank=True, max_length=2000)
    emails = serializers.ListField(child=Text(max_length=254), required=False, default=list, max_length=100)
    digest_minutes = WholeNumber(required=False, default=0, help_text="0: each event at once")
    enabled = TrueOrFalse(required=False, default=True)


class RotateNotificationSecret(ReasonMixin):
    overlap_seconds = WholeNumber(
        required=False,
        default=86_400,
        min_value=0,
        max_value=30 * 86_400,
        help_text="how long messages are signed with both secrets",
    )


class NotificationKindDocument(Document):
    name = serializers.CharField()
    group = serializers.CharField()
    says = serializers.CharField()


class NotificationKindsDocument(Document):
    items = NotificationKindDocument(many=True)


class NotificationRuleDocument(Document):
    """A rule without its secret. `stopped_because`: why the control plane disabled it."""

    rule_id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    enabled = serializers.BooleanField()
    kinds = serializers.ListField(child=serializers.CharField())
    filters = serializers.JSONField()
    channel = serializers.CharField()
    url = serializers.CharField()
    emails = serializers.ListField(child=serializers.CharField())
    digest_minutes = serializers.IntegerField()
    old_secret_until = serializers.DateTimeField(allow_null=True)
    failures = serializers.IntegerField(help_text="in a row")
    last_delivered_at = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField()
    stopped_because = serializers.CharField()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    version = serializers.IntegerField()


class MadeNotificationRuleDocument(NotificationRuleDocument):
    """With the secret that messages are signed with, this once; null where there is no new one."""

    secret = serializers.CharField(allow_null=True)


class NotificationDeliveryDocument(Document):
    """A message: COLLECTING, WAITING, DELIVERED or DEAD. Its id is the `webhook-id` of every try."""

    delivery_id = serializers.CharField(source="public_id")
    rule_id = serializers.CharField(source="rule.public_id")
    state = serializers.CharField()
    test = serializers.BooleanField()
    kind = serializers.CharField(help_text="of its first event")
    events = serializers.IntegerField()
    attempts = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    due_at = serializers.DateTimeField()
    delivered_at = serializers.DateTimeField(allow_null=True)
    last_status = serializers.IntegerField(allow_null=True)
    last_error = serializers.CharField()


class NotificationTryDocument(Document):
    n = serializers.IntegerField()
    at = serializers.DateTimeField()
    ms = serializers.IntegerField()
    status = serializers.IntegerField(allow_null=True)
    error = serializers.CharField()
    response = serializers.CharField(help_text="the beginning of the answer's body")


class NotifiedEventDocument(Document):
    event_id = serializers.CharField()
    kind = serializers.CharField()
    subject = serializers.CharField()
    at = serializers.DateTimeField()
    says = serializers.CharField()


class OneNotificationDeliveryDocument(NotificationDeliveryDocument):
    """A message with its events and every try."""

    contents = NotifiedEventDocument(many=True)
    tries = NotificationTryDocument(many=True)


def show_kinds(kinds: tuple[Kind, ...]) -> dict[str, Any]:
    """What a rule may ask for."""
    return {"items": [dict(NotificationKindDocument(kind).data) for kind in kinds]}


def show_rule(rule: NotificationRule) -> dict[str, Any]:
    """A rule as its owner sees it."""
    return dict(NotificationRuleDocument(rule).data)


def show_delivery(delivery: Delivery) -> dict[str, Any]:
    """A message in a list."""
    return dict(NotificationDeliveryDocument(delivery).data)


def show_whole_delivery(delivery: Delivery) -> dict[str, Any]:
    """A message with all that is known of it."""
    contents = delivery.contents.select_related("event").order_by("event__at", "event_id")
    tries = DeliveryAttempt.objects.filter(delivery=delivery).order_by("n", "id")
    return {
        **show_delivery(delivery),
        "contents": [
            dict(
                NotifiedEventDocument(
                    {
                        "event_id": content.event.event_id,
                        "kind": content.event.kind,
                        "subject": content.event.subject,
                        "at": content.event.at,
                        "says": sentence(content.event),
                    }
                ).data
            )
            for content in contents
        ],
        "tries": [dict(NotificationTryDocument(one).data) for one in tries],
    }
