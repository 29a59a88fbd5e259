"""Audit, routing feed and outbox. All three are written in the transaction they tell of."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from controlplane.identity import AUDIT, encode, new_id


class AuditEvent(models.Model):
    """One change by a person, a key or the system. Append-only: a trigger refuses the rest.

    Refers to tenants and actors by id without a foreign key: it outlives both.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    at = models.DateTimeField(db_default=Now())
    tenant_id = models.UUIDField(null=True, blank=True)
    actor = models.CharField(max_length=200)
    source = models.CharField(max_length=200, blank=True)
    action = models.CharField(max_length=80)  # `api_key.revoke`
    subject = models.CharField(max_length=200)  # id of what was changed
    reason = models.TextField(blank=True)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "id"], name="audit_by_tenant"),
            models.Index(fields=["action", "id"], name="audit_by_action"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.subject}"

    @property
    def public_id(self) -> str:
        return encode(AUDIT, self.id)


class Change(models.Model):
    """A routing fact changed. The row names it; readers look its present value up.

    Rows carry no values because two transactions may commit in another order than their
    numbers: the value read later is right whichever row comes last.
    """

    class Kind(models.TextChoices):
        KEY = "key"  # an API key
        TENANT = "tenant"  # a tenant's placement, state or request quota
        CELL = "cell"  # a cell's address, key or state

    id = models.BigAutoField(primary_key=True)
    # xid8 in the database; see sql/feed.sql.
    kind = models.CharField(max_length=8, choices=Kind.choices)
    key = models.CharField(max_length=80)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "routing_change"

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class FeedHorizon(models.Model):
    """One row: which feed this is, and from where on it is complete."""

    singleton = models.BooleanField(primary_key=True, default=True)
    # A restored or rebuilt database gets another identity, so that old cursors are refused.
    identity = models.UUIDField(default=uuid.uuid4)
    oldest_xid = models.BigIntegerField(default=0)

    class Meta:
        db_table = "routing_feed_horizon"
        constraints: ClassVar = [
            models.CheckConstraint(condition=models.Q(singleton=True), name="feed_horizon_singleton")
        ]

    def __str__(self) -> str:
        return str(self.identity)


class OutboxItem(models.Model):
    """Something to do outside the database, wanted by a committed transaction.

    One row per topic and subject: wanting it again while it waits raises `generation`, and the
    row only goes when the newest generation has been done. Handlers are idempotent.
    """

    id = models.BigAutoField(primary_key=True)
    topic = models.CharField(max_length=60)
    subject = models.CharField(max_length=120)
    generation = models.BigIntegerField(default=1)
    wanted_at = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField(db_default=Now())  # next try
    leased_until = models.DateTimeField(null=True, blank=True)
    attempts = models.IntegerField(default=0)  # since it was last wanted
    last_error = models.TextField(blank=True, default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["topic", "subject"], name="outbox_one_per_subject")
        ]
        indexes: ClassVar = [models.Index(fields=["due_at"], name="outbox_due")]

    def __str__(self) -> str:
        return f"{self.topic} {self.subject}"
