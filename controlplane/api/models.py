"""Stored answers of creating requests."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now


class IdempotencyKey(models.Model):
    """The answer to a POST with an Idempotency-Key, kept a day.

    Sealed: an answer may hold an API key that is otherwise shown once.
    """

    id = models.BigAutoField(primary_key=True)
    scope = models.CharField(max_length=80)  # the tenant's uuid, or `operators`
    route = models.CharField(max_length=200)  # method and path
    key = models.CharField(max_length=255)
    fingerprint = models.BinaryField()  # SHA-256 of the body
    status = models.SmallIntegerField(default=0)
    sealed = models.BinaryField(default=b"")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["scope", "route", "key"], name="idempotency_key_once")
        ]
        indexes: ClassVar = [models.Index(fields=["created_at"], name="idempotency_key_age")]

    def __str__(self) -> str:
        return f"{self.route} {self.key}"
