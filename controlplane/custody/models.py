"""Exports of everything a tenant has, as stored."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from controlplane.identity import encode, new_id

EXPORT = "tex"


class ExportState(models.TextChoices):
    """The life of a tenant's export."""

    REQUESTED = "REQUESTED"  # waits for a worker
    RUNNING = "RUNNING"  # somebody writes it under a lease, or did until it lapsed
    DONE = "DONE"  # its files are whole and can be fetched
    FAILED = "FAILED"  # given up; `error` says why
    EXPIRED = "EXPIRED"  # its files are gone


#: Exports that are not over.
OPEN = (ExportState.REQUESTED, ExportState.RUNNING)


class TenantExport(models.Model):
    """Everything of a tenant in files, written kind by kind. `kind`, `cursor` and `files` are kept with each
    file, so that whoever takes over goes on behind the last one. Refers to its tenant by id only."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant_id = models.UUIDField()
    state = models.CharField(max_length=10, choices=ExportState.choices, default=ExportState.REQUESTED)
    place = models.TextField()  # URL of the folder its own folder lies in
    kind = models.IntegerField(default=0)  # which of `contents.KINDS` is being written
    cursor = models.TextField(blank=True, default="")  # behind what was written of it
    part = models.IntegerField(default=0)  # files written of it
    counts = models.JSONField(default=dict)  # rows by kind
    files = models.JSONField(default=list)  # [{"name", "kind", "rows", "bytes", "sha256"}]
    requested_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField(db_default=Now())
    attempts = models.IntegerField(default=0)  # since a file was last written
    lease = models.UUIDField(null=True)
    leased_until = models.DateTimeField(null=True)
    error = models.TextField(blank=True, default="")
    finished_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id"],
                condition=Q(state__in=["REQUESTED", "RUNNING"]),
                name="tenant_export_one_open",
            ),
            models.CheckConstraint(condition=Q(state__in=ExportState.values), name="tenant_export_state"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "-id"], name="tenant_exports_of"),
            models.Index(
                fields=["due_at"], condition=Q(state__in=["REQUESTED", "RUNNING"]), name="tenant_export_due"
            ),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return encode(EXPORT, self.id)
