"""Operators as guests in a tenant's console."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from controlplane.identity import new_id


class SupportVisit(models.Model):
    """An operator in a tenant's console, for a while and for a reason."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    operator = models.ForeignKey("tenants.User", on_delete=models.CASCADE, related_name="support_visits")
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="support_visits")
    reason = models.CharField(max_length=300)
    started_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["operator", "tenant"], condition=Q(ended_at=None), name="support_visit_one_open"
            ),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("started_at")), name="support_visit_ends_after_it_began"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "id"], name="support_visit_by_tenant")]

    def __str__(self) -> str:
        return f"{self.operator_id} in {self.tenant_id}"


class PayloadGrant(models.Model):
    """A tenant lets visiting operators see payloads, until an instant. Without a row they never do."""

    tenant = models.OneToOneField(
        "tenants.Tenant", on_delete=models.CASCADE, primary_key=True, related_name="payload_grant"
    )
    until = models.DateTimeField()
    granted_by = models.CharField(max_length=200)

    def __str__(self) -> str:
        return f"{self.tenant_id} until {self.until}"


class OperatorRead(models.Model):
    """An operator looked at a tenant within an hour: what keeps the audit log from a line for each page."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    operator = models.CharField(max_length=200)  # `user:<uuid>`, `key:<id>`
    tenant_id = models.UUIDField()
    hour = models.DateTimeField()  # its beginning

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["operator", "tenant_id", "hour"], name="operator_read_once_an_hour"
            )
        ]

    def __str__(self) -> str:
        return f"{self.operator} {self.tenant_id} {self.hour:%Y-%m-%d %H}h"
