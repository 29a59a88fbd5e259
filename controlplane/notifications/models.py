"""Rules, events that some rule wanted, and the messages that carry them, as stored."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from controlplane.identity import encode, new_id

RULE = "ntr"
DELIVERY = "ntd"


class Channel(models.TextChoices):
    """How a rule tells."""

    WEBHOOK = "WEBHOOK"  # CloudEvents, signed, to an address
    EMAIL = "EMAIL"  # mails to members


class LivingRules(models.Manager["NotificationRule"]):
    """Rules that were not removed: what is left of the others goes bit by bit."""

    def get_queryset(self) -> models.QuerySet[NotificationRule]:
        return super().get_queryset().filter(removed_at=None)


class NotificationRule(models.Model):
    """What somebody wants to hear of, and how. Without a tenant it is the operators'."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(
        "tenants.Tenant", on_delete=models.CASCADE, null=True, related_name="notification_rules"
    )
    name = models.CharField(max_length=120)
    enabled = models.BooleanField(default=True)
    kinds = ArrayField(models.CharField(max_length=60))
    filters = models.JSONField(default=dict)
    channel = models.CharField(max_length=8, choices=Channel.choices)
    url = models.CharField(max_length=2000, blank=True, default="")
    emails = ArrayField(models.CharField(max_length=254), default=list)
    digest_minutes = models.IntegerField(default=0)  # 0: each event at once
    sealed_secret = models.BinaryField(null=True)
    sealed_old_secret = models.BinaryField(null=True)  # signs as well, until then
    old_secret_until = models.DateTimeField(null=True)
    # How its receiver does.
    failures = models.IntegerField(default=0)  # in a row
    held_until = models.DateTimeField(null=True)
    last_delivered_at = models.DateTimeField(null=True)
    last_error = models.TextField(blank=True, default="")
    stopped_because = models.TextField(blank=True, default="")  # disabled by the control plane itself
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())
    version = models.BigIntegerField(default=1)
    removed_at = models.DateTimeField(null=True)  # nobody sees it any more; `tasks.prune` ends it

    objects = LivingRules()
    everything = models.Manager["NotificationRule"]()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(channel="WEBHOOK", sealed_secret__isnull=False) & ~Q(url="")
                | Q(channel="EMAIL", url="", sealed_secret=None),
                name="notification_rule_has_a_way",
            ),
            models.CheckConstraint(
                condition=Q(digest_minutes__gte=0, digest_minutes__lte=1440), name="notification_digest"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "id"], name="notification_rules_of")]

    def __str__(self) -> str:
        return self.name

    @property
    def public_id(self) -> str:
        return encode(RULE, self.id)


class NotificationEvent(models.Model):
    """An event that some rule wanted. Its id is unique within its tenant."""

    id = models.BigAutoField(primary_key=True)
    event_id = models.CharField(max_length=120)
    tenant_id = models.UUIDField(null=True)
    kind = models.CharField(max_length=60)
    source = models.CharField(max_length=80)  # `cell/<name>`, `control-plane`
    subject = models.CharField(max_length=300)
    actor = models.CharField(max_length=200, blank=True, default="")
    at = models.DateTimeField()
    data = models.JSONField(default=dict)
    heard_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id", "event_id"], nulls_distinct=False, name="notification_event_once"
            )
        ]
        indexes: ClassVar = [models.Index(fields=["heard_at"], name="notification_event_age")]

    def __str__(self) -> str:
        return f"{self.kind} {self.event_id}"


class DeliveryState(models.TextChoices):
    """The life of a message."""

    COLLECTING = "COLLECTING"  # a digest that still takes events
    WAITING = "WAITING"  # to be sent, or to be sent again
    DELIVERED = "DELIVERED"  # the receiver has it
    DEAD = "DEAD"  # not delivered for a day, or refused for good


#: Messages that are not over.
OPEN = (DeliveryState.COLLECTING, DeliveryState.WAITING)


class Delivery(models.Model):
    """One message of a rule: an event, or a digest of some. Its id is what a webhook's receiver
    tells repetitions by."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    rule = models.ForeignKey(NotificationRule, on_delete=models.CASCADE, related_name="deliveries")
    state = models.CharField(max_length=10, choices=DeliveryState.choices)
    test = models.BooleanField(default=False)  # by the button; sent though the rule is disabled
    # Made to hold several events; so its body is a batch, whatever becomes of its rule.
    digest = models.BooleanField(default=False, db_default=False)
    events = models.IntegerField(default=1)
    kind = models.CharField(max_length=60)  # of its first event
    due_at = models.DateTimeField(db_default=Now())
    created_at = models.DateTimeField(db_default=Now())
    give_up_at = models.DateTimeField()
    attempts = models.IntegerField(default=0)
    lease = models.UUIDField(null=True)
    leased_until = models.DateTimeField(null=True)
    delivered_at = models.DateTimeField(null=True)
    last_status = models.IntegerField(null=True)
    last_error = models.TextField(blank=True, default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["rule"], condition=Q(state="COLLECTING"), name="notification_one_digest_open"
            ),
            models.CheckConstraint(
                condition=Q(state__in=DeliveryState.values), name="notification_delivery_state"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["rule", "-id"], name="notification_deliveries_of"),
            models.Index(
                fields=["rule", "due_at"],
                condition=Q(state__in=["COLLECTING", "WAITING"]),
                name="notification_delivery_due",
            ),
            models.Index(fields=["created_at"], name="notification_delivery_age"),
            models.Index(
                fields=["leased_until"],
                condition=Q(leased_until__isnull=False),
                name="notification_under_way",
            ),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return encode(DELIVERY, self.id)


class DeliveredEvent(models.Model):
    """An event in a message. A rule gets each event once."""

    id = models.BigAutoField(primary_key=True)
    rule = models.ForeignKey(NotificationRule, on_delete=models.CASCADE)
    event = models.ForeignKey(NotificationEvent, on_delete=models.CASCADE)
    # Null: of a digest, and not put into it yet.
    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, null=True, related_name="contents")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["rule", "event"], name="notification_told_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=["rule", "id"], condition=Q(delivery=None), name="notification_uncollected")
        ]

    def __str__(self) -> str:
        return f"{self.event_id} by {self.rule_id}"


class DeliveryAttempt(models.Model):
    """One try to deliver a message, and what came of it."""

    id = models.BigAutoField(primary_key=True)
    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="tries")
    n = models.IntegerField()
    at = models.DateTimeField(db_default=Now())
    ms = models.IntegerField()
    status = models.IntegerField(null=True)  # of the receiver's answer
    error = models.TextField(blank=True, default="")  # why it does not count as delivered
    response = models.TextField(blank=True, default="")  # the beginning of the answer's body

    def __str__(self) -> str:
        return f"{self.n} of {self.delivery_id}"


class FeedPlace(models.Model):
    """How far the feed of a tenant's cell was read for its rules. The place moves along with the tenant."""

    tenant_id = models.UUIDField(primary_key=True)
    since = models.DateTimeField(db_default=Now())  # without a place: what happened from then on
    # (epoch, transaction, number); behind it, of each local store, its number and the same there.
    place = ArrayField(models.BigIntegerField(), null=True)
    read_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return str(self.tenant_id)


class CellSeen(models.Model):
    """What operators were last told of a cell."""

    cell = models.CharField(primary_key=True, max_length=63)
    epoch = models.BigIntegerField(default=0)
    silent_since = models.DateTimeField(null=True)  # told of; null: it answers

    def __str__(self) -> str:
        return self.cell
